// The page of `agentr1 play --web`: the episode so far, and what a person does next.
const meta = JSON.parse($("meta").textContent);
let state = null, busy = false, plainly = stored.get("plain") === "yes"; // whether a scene is shown as the text that a policy sees

async function does(name, body = {}) {
  if (busy) return;
  busy = true;
  document.body.classList.add("busy");
  try {
    show(await ask(name, null, body));
  } catch (error) {
    $("message").textContent = safe(error.message);
  } finally {
    busy = false;
    document.body.classList.remove("busy");
  }
}
function show(next) {
  const before = state?.episode.steps.length ?? -1, { episode: e, over } = state = next;
  const info = e.reset_info, prompts = wholePrompts(e), parts = [], stepped = e.steps.length !== before;
  if (stepped) tab = null;
  $("task").textContent = safe([info.task_id, info.split, info.index === undefined ? "" : `index ${info.index}`].filter(Boolean).join(" \u00b7 "));
  $("index").placeholder = info.index ?? "";
  $("tally").textContent = next.played ? `${next.played} played, ${next.solved} solved` : "";
  if (e.instructions) { const part = folded("instructions", () => [block("", "", e.instructions)]); part.open = !e.steps.length; parts.push(part); }
  if (e.tools.length) parts.push(folded("tools: " + e.tools.map(tool => tool.function.name).join(", "), () => [block("", "", words(e.tools))]));
  const drawn = scene(e, prompts), cards = () => e.steps.map((step, k) => stepCard(step, k, prompts[k], prompts[k + 1]));
  $("plain").hidden = !drawn;
  $("plain").textContent = plainly ? "as a page" : "as text";
  document.body.classList.toggle("drawn", Boolean(drawn && !plainly));
  if (drawn && !plainly) {
    if (e.steps.length) parts.push(folded(`${many(e.steps.length, "step")} so far, as a policy sees them`, cards));
    parts.forEach(part => { part.open = false; });
    parts.unshift(drawn);
  } else {
    parts.push(...cards());
    if (!e.steps.length) parts.push(messages("prompt", "task", prompts[0]));
  }
  const earned = e.steps.reduce((n, step) => n + Number(step.reward), 0);
  if (over) {
    const end = el("p", `end ${e.success ? "yes" : "no"}`, `The episode is over after ${many(e.steps.length, "step")}: ${e.success ? "solved" : "not solved"}${e.steps.at(-1).terminated ? "" : ", the step limit is reached"}. Return ${number(earned)}.`);
    if (parts[0] === drawn) parts.unshift(end);
    else parts.push(end);
  }
  $("episode").replaceChildren(...parts);
  if (stepped && parts.includes(drawn)) (innerWidth > 820 ? $("episode") : window).scrollTo({ top: 0, behavior: "instant" });
  else if (stepped) ($("episode").lastElementChild ?? $("episode")).scrollIntoView({ block: e.steps.length ? "end" : "nearest" });
  $("message").textContent = safe(next.message);
  $("form").hidden = true;
  $("all").hidden = !next.choices.length;
  $("count").textContent = many(next.choices.length, "action");
  $("choices").replaceChildren(...next.choices.slice(0, 300).map((choice, n) => {
    const node = button("", () => pick(n));
    if (n < 9) node.append(el("span", "label", n + 1));
    node.append(el("bdi", "", choice.label));
    return node;
  }));
  if (next.choices.length > 300) $("choices").append(el("span", "label", `${next.choices.length - 300} more: write them below`));
  for (const id of ["take", "action", "hint", "let"]) $(id).disabled = over;
  $("undo").disabled = !e.steps.length;
  if (stepped) {
    $("action").value = "";
    say(over ? document.querySelector(".end").textContent : `step ${e.steps.length + 1}`);
  }
}
function pick(n) {
  const choice = state.choices[n];
  if (!choice) return;
  if (!choice.arguments.length) { does("choose", { number: n }); return; }
  const fields = choice.arguments.map(argument => {
    const label = el("label", "", argument.name + (argument.kind === "string" || argument.kind === "value" ? "" : ` [${argument.kind}]`) + (argument.required ? "" : ", may be left empty")), input = el("input");
    input.name = argument.name;
    input.required = argument.required;
    input.autocomplete = "off";
    if (argument.about) label.append(el("span", "label", " " + argument.about));
    label.append(input);
    return label;
  });
  const row = el("div", "row"), go = el("button", "", "act");
  row.append(go, button("cancel", () => { $("form").hidden = true; }));
  $("form").replaceChildren(el("h2", "", choice.label), ...fields, row);
  $("form").onsubmit = event => {
    event.preventDefault();
    does("choose", { number: n, values: Object.fromEntries([...$("form").querySelectorAll("input")].map(input => [input.name, input.value])) });
  };
  $("form").hidden = false;
  fields[0].querySelector("input").focus();
}
function unfold(listed) { // a long list would leave a phone no room for the episode
  $("all").open = listed && (innerWidth > 820 || state.choices.length < 5);
}
function changePlain() {
  plainly = !plainly;
  stored.set("plain", plainly ? "yes" : "");
  unfold(plainly);
  show(state);
}
$("plain").onclick = changePlain;
document.title = $("title").textContent = safe(meta.env + (meta.limit ? `, at most ${many(meta.limit, "step")}` : ""));
$("own").onsubmit = event => { event.preventDefault(); does("act", { action: $("action").value }); };
$("action").onkeydown = event => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("own").requestSubmit(); };
$("goto").onsubmit = event => { event.preventDefault(); if ($("index").value !== "") does("task", { index: Number($("index").value) }); };
for (const name of ["undo", "restart", "new"]) $(name).onclick = () => does(name);
$("hint").onclick = () => does("expert");
$("let").onclick = () => does("expert", { play: true });
listen([
  ["1 to 9", "take an action of the list", null],
  ...[..."123456789"].map(key => [key, "", () => pick(Number(key) - 1)]),
  ["/", "write an action; Ctrl-Enter takes it", () => $("action").focus()],
  ["e", "the expert's hint", () => $("hint").click()], ["w", "let the expert act", () => $("let").click()],
  ["u", "take back the last action", () => $("undo").click()], ["r", "start this task again", () => $("restart").click()],
  ["m", "another task", () => $("new").click()], ["p", "as a page or as text", () => { if (!$("plain").hidden) changePlain(); }], ["t", "light or dark", changeTheme], ["?", "these keys", () => $("keys").showModal()],
]);
ask("state").then(first => {
  show(first);
  unfold(!document.body.classList.contains("drawn"));
  document.body.dataset.ready = Math.round(performance.now());
}, error => { $("message").textContent = safe(error.message); });
