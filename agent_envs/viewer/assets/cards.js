// An episode's steps as cards.
function picture(source, label) {
  const figure = el("figure");
  if (!/^data:image\/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/=]*$/.test(source)) { // nothing is loaded from elsewhere
    figure.append(el("span", "label", "picture: " + source.slice(0, 200)));
    return figure;
  }
  const image = el("img", "picture");
  image.alt = label;
  image.src = source;
  const enlarge = () => {
    image.classList.toggle("large");
    image.title = image.classList.contains("large") ? "make smaller" : "enlarge";
  };
  image.title = "enlarge";
  image.tabIndex = 0;
  image.setAttribute("role", "button");
  image.onclick = enlarge;
  image.onkeydown = event => { if (event.key === "Enter") enlarge(); };
  figure.append(image);
  return figure;
}
// A text with its pictures where it has <image>.
function inPlace(text, images) {
  const pieces = words(text ?? "").split("<image>"), parts = [];
  for (let i = 0; i < Math.max(pieces.length, images.length); i++) {
    if (pieces[i]?.trim()) parts.push({ type: "text", text: pieces[i] });
    if (i < images.length) parts.push({ type: "image", image: images[i] });
  }
  return parts;
}
// The content of a message: text, or parts of text and pictures.
function content(className, label, given) {
  const parts = Array.isArray(given) ? given : given && typeof given === "object" && Array.isArray(given.images)
    ? inPlace(given.text, given.images) : null;
  if (!parts || !parts.every(part => part && typeof part === "object")) return block(className, label, words(given ?? ""));
  const box = el("div", className);
  if (label) box.append(el("div", "label", label));
  let count = 0;
  for (const part of parts) {
    const source = part.image_url?.url ?? part.image_url ?? part.image ?? part.url;
    if (typeof source === "string") box.append(picture(source, `picture ${++count}`));
    else box.append(block("", "", words(part.text ?? part)));
  }
  return box;
}
function messages(className, label, list) {
  const part = el("div", "part " + className);
  list.forEach((message, i) => {
    const role = [i ? "" : label, words(message.role), words(message.name ?? "")].filter(Boolean).join(" \u00b7 ");
    const box = content("message", role, message.content);
    if (message.tool_calls) box.append(block("", "", words(message.tool_calls)));
    part.append(box);
  });
  return part;
}
function call(c) {
  if (c.problem !== undefined) return block("part call bad", "call that cannot be read: " + c.problem, c.raw);
  return block("part call", "call: " + c.name, Object.entries(c.arguments).map(([name, value]) => `${name}: ${words(value)}`).join("\n"));
}
// What answers an action stands behind the policy's last words in the next prompt; a prompt made anew is shown whole.
const answers = prompt => prompt.slice(prompt.findLastIndex(message => message.role === "assistant") + 1);
function wholePrompts(e) {
  const prompts = [];
  e.prompts.forEach(({ kept, new: added }, k) => prompts.push(k ? [...prompts[e.steps[k]?.after ?? k - 1].slice(0, kept), ...added] : added));
  return prompts;
}
// The prompt that shows what came of a step: of the step that goes on from it, or of the first after the environment moved.
function following(e, k) {
  const step = e.steps[k], acted = step.info.env_steps !== 0;
  if (step.time === undefined) return k + 1;
  const next = e.steps.findIndex((other, j) => other.after === k || (acted && j > k && other.time > step.time));
  return next >= 0 || !acted ? next : e.steps.length;
}
function stepCard(step, k, prompt, next, extras = []) {
  const card = el("article", "step"), bar = el("div", "bar");
  card.dataset.step = k;
  card.setAttribute("aria-label", `step ${k + 1}`);
  bar.append(el("h2", "", `step ${k + 1}`), el("span", "", `reward ${number(step.reward)}`));
  for (const [name, value] of Object.entries(step.info.reward_components ?? {})) bar.append(el("span", "label", `${name} ${number(value)}`));
  if (step.info.invalid_action) bar.append(el("span", "bad", "invalid action"));
  if (step.terminated) bar.append(el("span", "", "terminated"));
  if (step.truncated) bar.append(el("span", "", "truncated"));
  if (step.role) bar.append(el("span", "chip", step.role));
  if (step.trained === false) bar.append(el("span", "chip", "untrained"));
  if (step.info.env_steps) bar.append(el("span", "chip acted", step.info.env_steps > 1 ? `acted ${number(step.info.env_steps)} times` : "acted"));
  if (k && step.time !== undefined && step.after !== k - 1) bar.append(el("span", "label", step.after >= 0 && step.after !== null ? `continues step ${step.after + 1}` : "new prompt"));
  if (step.usage && !step.response_ids) bar.append(el("span", "label", `${number(step.usage.prompt_tokens)} prompt tokens, ${number(step.usage.completion_tokens)} sampled tokens`));
  card.append(bar);
  if (!k || (step.time !== undefined && answers(prompt).length === prompt.length)) card.append(messages("prompt", "prompt", prompt));
  else if (prompt.length > 1) card.append(folded(`prompt of ${prompt.length} messages`, () => [messages("prompt", "", prompt)]));
  if (step.calls) {
    if (step.thought) card.append(block("part thought", "thought", step.thought));
    if (step.said) card.append(block("part action", step.calls.length ? "said" : "action", step.said));
    card.append(...step.calls.map(call), folded("as written", () => [block("", "", step.action)]));
  } else card.append(block("part action", "action", step.action));
  card.append(...extras);
  if (next) card.append(messages("result", "result", answers(next)));
  const more = Object.fromEntries(Object.entries(step.info).filter(([name]) => !["reward_components", "invalid_action", "env_steps", "response_mask", "response_advantages", "response_entropies"].includes(name)));
  if (Object.keys(more).length) card.append(folded("info", () => [block("", "", words(more))]));
  return card;
}
