// Unpacks the compressed blocks of the page: `<script type="application/gzip+base64" id="…">`.

export const canUnpack = typeof DecompressionStream === "function";

/**
 * Decodes base64; the native Uint8Array.fromBase64 is much faster where it exists.
 * @param {string} text
 */
function bytesOfBase64(text) {
  if ("fromBase64" in Uint8Array && Uint8Array.fromBase64 instanceof Function) return Uint8Array.fromBase64(text);
  const decoded = atob(text);
  const bytes = new Uint8Array(decoded.length);
  for (let at = 0; at < decoded.length; at++) bytes[at] = decoded.charCodeAt(at);
  return bytes;
}

/**
 * Resolves to the unpacked bytes of the block `id`; null if the page has no such block.
 * @param {string} id
 */
export async function unpacked(id) {
  const block = document.getElementById(id);
  if (!block) return null;
  const packed = new Blob([bytesOfBase64(block.textContent.trim())]).stream();
  return new Uint8Array(await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}
