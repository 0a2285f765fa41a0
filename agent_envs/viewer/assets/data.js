// Where episodes come from: chunks within the page, or the server that follows a run.
const meta = JSON.parse($("meta").textContent);
const F = Object.fromEntries(meta.fields.map((name, i) => [name, i]));
const all = []; // { row, i } of every episode
let files = meta.files ?? {}, generation = 0;
const chunks = new Map();

function decoded(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64); // a hundred times as fast
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
  return bytes;
}
async function unpacked(packed) {
  const bytes = decoded(packed);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return (await new Response(stream).text()).split("\n");
}
async function chunk(c) {
  if (!chunks.has(c)) {
    const lines = await unpacked($("chunk" + c).textContent);
    if (chunks.size > 20) chunks.delete(chunks.keys().next().value);
    chunks.set(c, lines);
  }
  return chunks.get(c);
}
async function episode(i) {
  if (meta.live) return (await ask("episodes", { generation, first: i, count: 1 }))[0];
  return JSON.parse((await chunk(Math.floor(i / meta.per_chunk)))[i % meta.per_chunk]);
}
async function readRows() {
  for (let k = 0; all.length < meta.count; k++)
    for (const line of await unpacked($("rows" + k).textContent)) all.push({ row: JSON.parse(line), i: all.length });
}
// The words of an episode: what was said to the policy, what it wrote, and how it ended.
function texts(e) {
  const said = e.prompts.flatMap(({ new: added }) => added.map(({ content }) => typeof content === "string" ? content : JSON.stringify(content ?? null, (name, value) => name === "image" || name === "images" ? undefined : value)));
  return [...said, ...e.steps.map(step => step.action), e.instructions, e.error, e.answer, e.episode_id];
}
// Some episodes from one on, as the page has them in a chunk or the server sends them.
async function some(first) {
  if (meta.live) return ask("episodes", { generation, first, count: meta.per_chunk });
  return unpacked($("chunk" + first / meta.per_chunk).textContent);
}
/* Looks through the texts of episodes, chunk by chunk, and calls `found` with those that have the words; it stops when
   `wanted` says no. Words of letters without accents are first looked for in a chunk as it is written, which is ASCII. */
async function lookThrough(text, found, wanted) {
  const word = text.toLowerCase(), plain = /^[\x20-\x7e]*$/.test(word) ? JSON.stringify(word).slice(1, -1) : "";
  const has = e => {
    if (typeof e === "string") return e.toLowerCase().includes(plain) && has(JSON.parse(e));
    return texts(e).some(one => one.toLowerCase().includes(word));
  };
  for (let first = 0; first < all.length && wanted();) {
    const part = await some(first), hits = part.flatMap((e, k) => has(e) ? [first + k] : []);
    first += part.length;
    if (wanted()) found(hits, Math.min(all.length, first));
  }
}
