// The page of `agentr1 view`: what is chosen, the keys, and news from a run that goes on.
let viewing = 0; // the number of the latest choice: an earlier one that is still being read is dropped
let current = null;

function pairsOf(e, row) {
  return [["environment", e.env_id], ["task", row[F.task]], ["episode", e.episode_id], ["group", e.group_id === row[F.task] ? "" : e.group_id], ["run", row[F.run]], ["phase", row[F.phase]], ["training step", at(row[F.at])], ["split", row[F.split]], ["family", row[F.family]], ["sample", row[F.sample]], ["seed", e.seed], ["end", e.stop_reason], ["return", number(row[F.return])], ["score", number(e.score)], ["solved", e.success ? "yes" : "no"], ...[...new Set(e.steps.map(step => step.role))].filter(Boolean).map(role => [`return of ${role}`, number(e.steps.reduce((sum, step) => sum + (step.role === role ? step.reward : 0), 0))])];
}
const OF_AGENTS = ["role", "trained", "time", "after"]; // fields of a step that only an agent's have
// The episode as a line of an episodes.jsonl, which `read_episodes` reads.
function record(e) {
  const prompts = wholePrompts(e), seen = k => e.prompts[k].text ? prompts[k][0].content : prompts[k];
  const before = [];
  const steps = e.steps.map((step, k) => {
    const begun = before[step.after ?? k - 1] ?? [], prompt = step.prompt_ids ? [...begun.slice(0, step.prompt_ids.kept), ...step.prompt_ids.new] : null;
    before.push(prompt ? [...prompt, ...step.response_ids] : begun);
    const of_agents = Object.fromEntries(OF_AGENTS.filter(name => name in step).map(name => [name, step[name]]));
    return { observation: seen(k), action: step.action, reward: step.reward, terminated: step.terminated, truncated: step.truncated, info: step.info, prompt_ids: prompt, response_ids: step.response_ids ?? null, response_logprobs: step.response_logprobs ?? null, usage: step.usage ?? null, ...of_agents };
  });
  const { env_id, episode_id, group_id, index, instructions, tools, reset_info, stop_reason, error } = e;
  const whole = { schema_version: e.roles || e.steps.some(step => OF_AGENTS.some(name => name in step)) ? 2 : 1, env_id, episode_id, group_id, seed: null, index, instructions, tools, reset_info, steps, final_observation: seen(e.steps.length), stop_reason, error: error || null, ...e.roles ? { roles: e.roles } : {} };
  return JSON.stringify(whole).replace('"seed":null', `"seed":${e.seed}`); // whose digits JavaScript does not have
}
/* The conversation of each step, numbered from 0, and how far it stands to the right: as many places as there are
   conversations that have begun before it and go on after its beginning. */
function conversations(steps) {
  const of = [], continued = new Set(), first = [], last = [], place = [];
  steps.forEach((step, k) => {
    const goesOn = typeof step.after === "number" && !continued.has(step.after);
    if (goesOn) continued.add(step.after);
    else first.push(k);
    last[of[k] = goesOn ? of[step.after] : first.length - 1] = k;
  });
  first.forEach((begin, c) => {
    const taken = new Set(place.filter((_, other) => last[other] > begin));
    place[c] = 0;
    while (taken.has(place[c])) place[c]++;
  });
  return { of, place: k => place[of[k]], count: first.length };
}
// What shows the steps of one role or conversation alone; null where there is one of each.
function stepFilter(e, talks, pane) {
  const roles = [...new Set(e.steps.map(step => step.role ?? ""))], options = [["", "all steps"]];
  if (roles.length > 1) for (const role of roles) options.push(["role " + role, role ? `steps of ${role}` : "steps without a role"]);
  if (talks.count > 1) for (let c = 0; c < Math.min(talks.count, 200); c++) options.push([`talk ${c}`, `conversation of step ${talks.of.indexOf(c) + 1}`]);
  if (options.length < 2) return null;
  const select = el("select", "steps");
  select.setAttribute("aria-label", "steps that are shown");
  for (const [value, text] of options) { const option = el("option", "", text); option.value = value; select.append(option); }
  select.onchange = () => { for (const card of pane.querySelectorAll(".step")) card.hidden = select.value !== "" && ![card.dataset.role, card.dataset.talk].includes(select.value); };
  return select;
}
// A call of the model that got no answer, with the number that it had among all calls.
function failedCard(failed) {
  const card = el("article", "step"), bar = el("div", "bar");
  card.dataset.role = "role " + words(failed.role ?? "");
  card.setAttribute("aria-label", "call without an answer");
  bar.append(el("h2", "bad", "call without an answer"));
  if (failed.role) bar.append(el("span", "chip", words(failed.role)));
  card.append(bar, block("part bad", "", words(failed.error ?? "")));
  if (failed.partial) card.append(block("part", "what came before", words(failed.partial)));
  return card;
}
const replays = e => e.steps.every(step => step.info.env_steps !== 0); // each step is an action of the environment
function command(row, steps) {
  const file = files[row[F.file]];
  return file ? `agentr1 play --replay ${file} --line ${row[F.line]}${steps === undefined ? "" : ` --step ${steps}`}` : "";
}
function tools(e, row, most, pane) {
  const bar = el("div", "tools"), json = button("copy as JSON", () => copy(record(e), json));
  bar.append(json);
  if (replays(e) && command(row)) {
    const play = button("copy play command", () => copy(command(row), play), command(row));
    bar.append(play);
  }
  if (e.steps.some(step => step.response_ids)) {
    const label = el("label", "", "tokens by "), select = el("select");
    const has = name => e.steps.some(step => step.response_ids && measures(step)[name]);
    for (const [name, text] of COLOURS.filter(([name]) => !name || has(name))) { const option = el("option", "", text); option.value = name; select.append(option); }
    if (!has(colour)) colour = "";
    select.value = colour;
    let drawn = legend(most);
    select.onchange = () => {
      colour = select.value;
      for (const part of pane.querySelectorAll(".tokened")) part.dispatchEvent(new Event("recolour"));
      const next = legend(most);
      drawn.replaceWith(next);
      drawn = next;
    };
    select.className = "colours";
    label.append(select);
    bar.append(label, drawn);
  }
  return bar;
}
async function shownEpisode({ row, i }, pane) {
  let e;
  try {
    e = await episode(i);
  } catch (error) {
    return [block("bad", "this episode cannot be read", error.message)];
  }
  if (pane === $("episode")) current = { e, row, i };
  const about = el("dl"), most = scales(e);
  for (const [name, value] of pairsOf(e, row))
    if (value !== null && value !== "") { const pair = el("div"); pair.append(el("dt", "", name), el("dd", "", value)); about.append(pair); }
  const parts = [about, tools(e, row, most, pane)];
  if (e.error) parts.push(block("part bad", "error", e.error));
  if (e.answer) parts.push(block("answer", `right answer, from ${e.answer_from}`, e.answer));
  else parts.push(el("div", "label", "no right answer is known for this task"));
  if (e.instructions) parts.push(folded("instructions", () => [block("", "", e.instructions)]));
  if (e.tools.length) parts.push(folded("tools: " + e.tools.map(tool => tool.function.name).join(", "), () => [block("", "", words(e.tools))]));
  parts.push(...rowsPart(e, pane));
  const prompts = wholePrompts(e), talks = conversations(e.steps), select = e.steps.some(step => step.time !== undefined) ? stepFilter(e, talks, pane) : null;
  if (select) parts[1].append(select);
  const failed = Array.isArray(e.reset_info.failed_calls) ? e.reset_info.failed_calls.filter(one => one && typeof one === "object") : [];
  e.steps.forEach((step, k) => {
    while (failed.length && failed[0].call < step.info.call) parts.push(failedCard(failed.shift()));
    const card = stepCard(step, k, prompts[k], prompts[following(e, k)], step.response_ids ? [tokens(step, most)] : []);
    card.dataset.role = "role " + words(step.role ?? "");
    card.dataset.talk = `talk ${talks.of[k]}`;
    if (step.time !== undefined) card.style.setProperty("--place", Math.min(talks.place(k), 8));
    if (replays(e) && command(row)) {
      const here = button("copy: play from here", () => copy(command(row, k), here), command(row, k));
      here.className = "quiet";
      here.setAttribute("aria-label", `copy: play from here, step ${k + 1}`);
      card.querySelector(".bar").append(el("span", "gap"), here);
    }
    parts.push(card);
  });
  parts.push(...failed.map(failedCard));
  if (!e.steps.length) parts.push(messages("prompt", "prompt", prompts[0]));
  return parts;
}
async function choose(i) {
  const mine = ++viewing;
  chosen = i;
  pairLine = null;
  draw();
  document.querySelector("tr.chosen")?.scrollIntoView({ block: "nearest" });
  const parts = await shownEpisode(all[i], $("episode"));
  if (mine !== viewing) return;
  $("episode").replaceChildren(...parts);
  $("episode").scrollTop = 0;
  document.body.dataset.pane = "episode";
  history.replaceState(null, "", "#" + i);
  const { row } = all[i];
  say(`episode ${row[F.task]}, ${row[F.success] ? "solved" : "not solved"}, ${many(row[F.steps], "step")}`);
}
function move(by, wanted = () => true) {
  if (mode === "pair") {
    const to = lines[Math.min(lines.length - 1, Math.max(0, (pairLine ? lines.findIndex(line => line.i === pairLine.i) : -1) + by))];
    if (to) { page = Math.floor(lines.indexOf(to) / PER_PAGE); choosePair(to); }
    return;
  }
  const list = inOrder();
  let to = list.findIndex(({ i }) => i === chosen);
  to = to < 0 ? (by > 0 ? 0 : -1) : to + by;
  while (list[to] && !wanted(list[to])) to += by;
  if (!list[to]) { say("no further episode"); return; }
  if (mode === "group") {
    const at = lines.findIndex(({ members }) => members.includes(list[to]));
    opened.add(taskKey(list[to].row));
    page = Math.floor(at / PER_PAGE);
  } else page = Math.floor(to / PER_PAGE);
  choose(list[to].i);
}
function toStep(by) {
  const cards = [...$("episode").querySelectorAll(".step:not([hidden])")];
  if (!cards.length) return;
  const now = cards.findIndex(card => card.classList.contains("here")), to = cards[Math.min(cards.length - 1, Math.max(0, now + by))];
  cards[now]?.classList.remove("here");
  to.classList.add("here");
  to.scrollIntoView({ block: "start" });
  say(to.getAttribute("aria-label"));
}
function nextColour() {
  const selects = [...document.querySelectorAll("select.colours")];
  for (const select of selects) { select.selectedIndex = (select.selectedIndex + 1) % select.options.length; select.onchange(); }
}
const press = (id, act) => { if (!$(id).hidden) act(); };
listen([
  ["j or \u2193", "next episode", () => move(1)], ["k or \u2191", "episode before", () => move(-1)],
  ["f", "next failure", () => move(1, ({ row }) => !row[F.success])], ["d", "failure before", () => move(-1, ({ row }) => !row[F.success])],
  ["n or \u2192", "next step of the episode", () => toStep(1)], ["p or \u2190", "step before", () => toStep(-1)],
  ["/", "search", () => { document.body.dataset.pane = "list"; $("filters").open = true; $("search").focus(); }],
  ["x", "search in all texts, or no longer", () => { $("contents").click(); }],
  ["g", "group by task", () => setMode("group")], ["c", "two runs side by side", () => press("compare", () => setMode("pair"))],
  ["h", "next colour of tokens", nextColour], ["v", "training curves", () => press("charts", () => toggleCurves())],
  ["y", "copy the episode as JSON", () => document.querySelector(".tools button")?.click()],
  ["l", "back to the list (small screens)", () => $("back").onclick()],
  ["t", "light or dark", changeTheme], ["?", "these keys", () => $("keys").showModal()], ["Esc", "leave a field"],
]);

function refresh(keep) {
  readValues();
  readSides();
  selects();
  filter(keep);
}
const firstFailure = () => (shown.find(({ row }) => !row[F.success]) ?? shown[0])?.i;
const narrow = () => matchMedia("(max-width: 820px)").matches;
let version = "", seenAny = false;
async function follow() {
  for (;;) {
    let pause = 1000 * meta.pause;
    try {
      const news = await ask("news", { generation, rows: all.length, curves: version });
      if (news.generation !== generation || news.first !== all.length) { all.length = news.first; generation = news.generation; chosen = -1; }
      files = news.files;
      for (const row of news.rows) all.push({ row, i: all.length });
      if (news.curves) { drawCurves(news.curves); if (news.curves.length && !version && !narrow()) toggleCurves(true); }
      version = news.curves_version;
      if (news.rows.length) refresh(true);
      else if (!seenAny) refresh();
      $("live").className = news.problem ? "stopped" : "";
      $("live").textContent = safe(news.problem || "live");
      if (!seenAny && all.length && !news.more) { seenAny = true; choose(firstFailure()); }
      if (news.more) pause = 0;
    } catch (error) {
      $("live").className = "stopped";
      $("live").textContent = safe(error.message);
    }
    document.body.dataset.ready ??= Math.round(performance.now());
    await new Promise(resolve => setTimeout(resolve, pause));
  }
}
document.title = $("title").textContent = safe(meta.title);
$("search").oninput = $("contents").onchange = searched;
$("group").onclick = () => setMode("group");
$("compare").onclick = () => setMode("pair");
$("charts").onclick = () => toggleCurves();
$("back").onclick = () => { document.body.dataset.pane = "list"; };
document.body.dataset.pane = "list";
if (narrow()) $("filters").open = false;
$("live").hidden = !meta.live;
refreshStart();
async function refreshStart() {
  if (meta.live) { follow(); return; }
  await readRows();
  drawCurves(meta.curves);
  refresh();
  const asked = /^#\d+$/.test(location.hash) ? Number(location.hash.slice(1)) : -1;
  const start = asked >= 0 && asked < all.length ? asked : firstFailure();
  if (start !== undefined) {
    page = Math.floor(Math.max(0, shown.findIndex(({ i }) => i === start)) / PER_PAGE);
    await choose(start);
  }
  document.body.dataset.ready = Math.round(performance.now());
}
