// Search in the timeline: which events have a name like that, and the way from one to the next.

class TimelineSearch {
  constructor(timeline) {
    this.timeline = timeline;
    this.input = timeline.section.querySelector(".timeline-search input");
    this.output = timeline.section.querySelector(".timeline-search output");
    this.steps = timeline.section.querySelectorAll('[data-do="previous"], [data-do="next"]');
    this.isWanted = null; // 0 or 1 for each label
    this.matches = new Map(); // by layer, made when first needed
    this.at = -1; // the hit that was gone to, in the first layer
    this.input.addEventListener("input", () => this.#find());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") this.clear();
    });
  }

  matchesOf(layer) {
    if (!this.isWanted) return null;
    if (!this.matches.has(layer)) this.matches.set(layer, new EventMatches(layer, this.isWanted));
    return this.matches.get(layer);
  }

  #find() {
    const text = this.input.value.trim().toLowerCase();
    this.#use(text ? (name) => name.toLowerCase().includes(text) : null);
  }

  #use(test) {
    this.isWanted = test && this.timeline.data.labelsWith(test);
    this.matches.clear();
    this.at = -1;
    this.#write();
    this.timeline.draw();
  }

  #write() {
    const { data } = this.timeline;
    const [layer] = data.layers;
    const found = this.matchesOf(layer);
    const noun = layer.isMerged ? "block" : "event";
    for (const button of this.steps) button.disabled = !found?.total;
    if (!found) this.output.textContent = "";
    else if (this.at < 0) this.output.textContent = found.total ? countText(found.total, noun) : "Nothing found";
    else {
      const rank = found.rank(layer.start[this.at], layer.rowOf(this.at));
      this.output.textContent = `${SCALAR_NUMBER.format(rank)} of ${countText(found.total, noun)}`;
    }
  }

  // Go to the next hit, or the previous one; from the last on to the first.
  step(direction) {
    const { timeline } = this;
    const [layer] = timeline.data.layers;
    const found = this.matchesOf(layer);
    if (!found?.total) return;
    const place = this.at < 0 ? [timeline.view.from, -1] : [layer.start[this.at], layer.rowOf(this.at)];
    let next = found.step(direction, ...place);
    if (next < 0) next = found.step(direction, direction > 0 ? -Infinity : Infinity, -1);
    this.at = next;
    this.#write();
    timeline.goTo(layer, next);
  }

  clear() {
    this.input.value = "";
    this.#use(null);
  }

  // Highlight the events of a name; one that is not there as a whole is looked for inside of names, and then without
  // its template arguments, which ncu spells in its own way.
  highlight(name) {
    const { names } = this.timeline.data;
    const isThere = names.includes(name);
    const part = names.some((other) => other.includes(name)) ? name : name.split(/[<(]/)[0];
    this.input.value = part;
    this.#use(isThere ? (other) => other === name : (other) => other.includes(part));
  }

  // Highlight the events of a name and zoom to the longest.
  showName(name) {
    const [layer] = this.timeline.data.layers;
    this.highlight(name);
    let longest = -1;
    for (let event = 0; event < layer.count; event++) {
      if (!this.isWanted[layer.label[event]]) continue;
      const length = layer.end[event] - layer.start[event];
      if (longest < 0 || length > layer.end[longest] - layer.start[longest]) longest = event;
    }
    if (longest < 0) return;
    this.at = longest;
    this.#write();
    this.timeline.zoomTo(layer, longest, 0.3);
  }
}
