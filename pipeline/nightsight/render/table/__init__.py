"""Tables as readers see them: layouts, shortened names, units, and the packed rows for the scripts."""
