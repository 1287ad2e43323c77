// The page: what people do becomes decisions of a review, and a review becomes elements.
import { ask, Refused, setToken } from "./client.js";
import { draw, moveSelection, selectedSpan, weight } from "./marks.js";
import { OPEN, Review } from "./review.js";
import { chooseLanguage, translate, WORDS } from "./words.js";

const $ = (id) => document.getElementById(id);
const LARGEST = 8_000_000;
const state = { models: [], keepsLabels: false, types: [], review: null, chosen: null, last: null, language: "en" };
const reviews = new Map();
let saving = Promise.resolve();

const words = () => WORDS[state.language];
const say = (sentence) => { $("status").textContent = sentence; };
const colour = (label) => Math.max(0, state.types.indexOf(label));
const chosen = () => state.review?.entities.find((entity) => entity.number === state.chosen);
const percent = (score) => Math.round(100 * score);
const describe = (entity) => words().describe(entity.label, percent(entity.score), words()[entity.state]);

// -- asking

async function loadModels() {
  try {
    const { models, keeps_labels } = await ask("/v1/models");
    state.models = models;
    state.keepsLabels = keeps_labels;
    $("model").replaceChildren(...models.map(({ name }) => new Option(name, name)));
    $("token-form").hidden = true;
  } catch (problem) {
    report(problem);
  }
}

async function read() {
  const text = $("input").value;
  if (!text.trim()) return say(words().nothing);
  const model = $("model").value;
  say(words().reading);
  const begun = performance.now();
  try {
    const { predictions } = await ask("/v1/predict", { model, inputs: [text] });
    show(text, predictions[0], model);
    say(words().read_in(Math.round(performance.now() - begun)));
  } catch (problem) {
    report(problem);
  }
}

function report(problem) {
  if (problem instanceof Refused && problem.status === 401) $("token-form").hidden = false;
  say(problem instanceof Refused ? problem.message : words().failed);
}

function show(text, record, model) {
  const parts = "coverage" in record ? [record] : Object.values(record);
  const tagged = parts.find((part) => Array.isArray(part.entities) && part.text === text);
  const others = parts.filter((part) => part !== tagged);
  const labels = state.models.find(({ name }) => name === model).tasks.filter(({ kind }) => kind === "tag").flatMap((task) => task.labels);
  state.types = [...new Set([...labels, ...(tagged?.entities ?? []).map(({ label }) => label)])];
  state.chosen = null;
  state.review = tagged ? new Review(text, tagged.entities, model) : null;
  if (state.review) reviews.set(state.review.id, state.review);
  $("text-panel").hidden = $("list-panel").hidden = !tagged;
  $("record-panel").hidden = others.length === 0;
  $("record").replaceChildren(...others.map(table));
  $("coverage").textContent = tagged ? words().coverage(tagged.coverage) : "";
  if (tagged) drawAll();
}

/** A record as a table: names and values, as text. */
function table(record) {
  const element = document.createElement("table");
  for (const [name, value] of Object.entries(record).filter(([name]) => !["id", "text", "coverage"].includes(name))) {
    const row = element.insertRow();
    row.insertCell().textContent = name;
    row.insertCell().append(value !== null && typeof value === "object" && !Array.isArray(value) ? table(value) : plain(value));
  }
  return element;
}

function plain(value) {
  if (typeof value === "number") return document.createTextNode(Number.isInteger(value) ? value : value.toFixed(4));
  return document.createTextNode(typeof value === "string" ? value : JSON.stringify(value));
}

// -- drawing

function drawAll() {
  drawTypes();
  drawMarks();
  drawList();
}

function drawMarks() {
  draw($("text"), state.review, colour, state.chosen, describe);
}

function drawTypes() {
  const buttons = state.types.map((label, number) => {
    const button = document.createElement("button");
    button.className = `c${number % 6}`;
    button.append(...(number < 9 ? [keyOf(number + 1), " "] : []), label);
    button.addEventListener("mousedown", (event) => event.preventDefault()); // keeps the selection
    button.addEventListener("click", () => useType(label));
    return button;
  });
  $("types").replaceChildren(...buttons);
  const kept = $("filter-type").value;
  $("filter-type").replaceChildren(new Option(words().all, ""), ...state.types.map((label) => new Option(label, label)));
  $("filter-type").value = state.types.includes(kept) ? kept : "";
}

function keyOf(text) {
  const key = document.createElement("kbd");
  key.textContent = text;
  return key;
}

/** The entities of the list, filtered and sorted. */
function listed() {
  const type = $("filter-type").value;
  const least = Number($("filter-score").value);
  const kept = state.review.entities.filter((entity) => (!type || entity.label === type) && entity.score >= least);
  const byPlace = (a, b) => a.start - b.start || b.end - a.end;
  return kept.sort($("sort").value === "doubt" ? (a, b) => a.score - b.score || byPlace(a, b) : byPlace);
}

function drawList() {
  const entities = listed();
  $("count").textContent = words().shown(entities.length, state.review.entities.length);
  const items = entities.map((entity) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.className = `c${colour(entity.label) % 6}`;
    button.dataset.entity = entity.number;
    button.setAttribute("aria-current", entity.number === state.chosen);
    button.append(cell("surface", state.review.surface(entity)), cell("label", entity.label), cell("state", `${percent(entity.score)} % · ${words()[entity.state]}`));
    button.firstChild.classList.add(`w${weight(entity.score)}`);
    item.append(button);
    return item;
  });
  if (items.length === 0) items.push(document.createElement("li"));
  if (entities.length === 0) items[0].append(cell("dim", words().none));
  $("list").replaceChildren(...items);
  for (const id of ["accept", "reject"]) $(id).disabled = chosen() === undefined;
  $("equal").disabled = state.last === null || chosen() === undefined;
  $("undo").disabled = state.review.past.length === 0;
}

function cell(name, text) {
  const element = document.createElement("span");
  element.className = name;
  element.textContent = text;
  return element;
}

// -- correcting

function choose(number, { focus = false } = {}) {
  state.chosen = number;
  drawMarks();
  drawList();
  $("text").querySelector("mark.chosen")?.scrollIntoView({ block: "nearest" });
  const button = $("list").querySelector("[aria-current=true]");
  if (focus) button?.focus();
  else button?.scrollIntoView({ block: "nearest" });
}

function step(by) {
  const entities = listed();
  if (entities.length === 0) return;
  const at = entities.findIndex((entity) => entity.number === state.chosen);
  const next = at < 0 ? (by > 0 ? 0 : entities.length - 1) : (at + by + entities.length) % entities.length;
  choose(entities[next].number, { focus: $("list").contains(document.activeElement) });
}

function decide(action, label) {
  const entity = chosen();
  if (entity === undefined) return;
  state.last = { action, label, before: entity.label };
  save(state.review.decide([entity], action, label));
}

/** Decide all entities with the surface and the former type of the last decision alike. */
function decideEqual() {
  const entity = chosen();
  if (entity === undefined || state.last === null) return;
  const { action, label, before } = state.last;
  const equal = state.review.equals({ ...entity, label: before }).filter((other) => other.state === OPEN);
  if (equal.length > 0) save(state.review.decide(equal, action === "add" ? "accept" : action, label));
}

function useType(label) {
  const span = selectedSpan($("text"), state.review);
  if (span === null) {
    const entity = chosen();
    if (entity !== undefined) decide(entity.label === label ? "accept" : "relabel", label);
    return;
  }
  const added = state.review.add(span.start, span.end, label);
  if (added === null) return;
  getSelection().removeAllRanges();
  state.chosen = added.entity.number;
  state.last = { action: "accept", label, before: label };
  save(added.decisions);
}

function acceptRest() {
  const open = state.review.entities.filter((entity) => entity.state === OPEN);
  if (open.length > 0) save(state.review.decide(open, "accept"));
}

/** Draw, and send decisions one after the other in the order in which they were made. */
function save(decisions) {
  drawMarks();
  drawList();
  if (!state.keepsLabels) return;
  const requests = decisions.map((made) => state.review.request(made, $("by").value));
  saving = requests.reduce(
    (before, request) => before.then(() => ask("/v1/decisions", request)),
    saving,
  ).then(() => say(words().saved)).catch((problem) => say(words().not_saved + problem.message));
}

function download() {
  const reviewed = [...reviews.values()].filter((review) => review.isReviewed);
  if (reviewed.length === 0) return say(words().undecided(state.review.entities.filter((entity) => entity.state === OPEN).length));
  const lines = reviewed.map((review) => `${JSON.stringify(review.record())}\n`);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines, { type: "application/x-ndjson" }));
  link.download = "labels.jsonl";
  link.click();
  URL.revokeObjectURL(link.href);
  return say(words().downloaded(reviewed.length));
}

const KEYS = {
  a: () => decide("accept"), r: () => decide("reject"), e: decideEqual, A: acceptRest, j: () => step(1), k: () => step(-1),
  u: () => save(state.review.undo()),
};

function pressed(event) {
  const isTyping = event.target.closest("input, textarea, select");
  if (event.key === "Enter" && event.ctrlKey && event.target.id === "input") return void read();
  if (isTyping || state.review === null || event.altKey || event.metaKey) return;
  if ($("text") === event.target && moveSelection($("text"), event)) return;
  if (event.ctrlKey) return;
  const type = /^[1-9]$/.test(event.key) ? state.types[Number(event.key) - 1] : undefined;
  if (type !== undefined) useType(type);
  else KEYS[event.shiftKey ? event.key : event.key.toLowerCase()]?.();
}

// -- the page

async function readFile(file) {
  if (file === undefined) return;
  if (file.size > LARGEST) return void say(words().too_large);
  $("input").value = await file.text();
  await read();
}

function listen() {
  $("ask").addEventListener("submit", (event) => { event.preventDefault(); read(); });
  $("token-form").addEventListener("submit", (event) => { event.preventDefault(); setToken($("token").value); $("token").value = ""; loadModels(); });
  $("text").addEventListener("click", (event) => {
    const mark = event.target.closest("mark");
    if (mark && getSelection().isCollapsed) choose(Number(mark.dataset.entity));
  });
  $("list").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) choose(Number(button.dataset.entity), { focus: true });
  });
  for (const id of ["sort", "filter-type", "filter-score"]) $(id).addEventListener("input", () => state.review && drawList());
  const buttons = { accept: KEYS.a, reject: KEYS.r, equal: KEYS.e, rest: KEYS.A, undo: KEYS.u, download };
  for (const [id, act] of Object.entries(buttons)) $(id).addEventListener("click", act);
  $("model").addEventListener("change", () => $("input").value.trim() && read());
  $("language").addEventListener("change", () => setLanguage($("language").value));
  $("by").addEventListener("change", () => localStorage.setItem("by", $("by").value));
  document.addEventListener("keydown", pressed);
  for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
  $("input").addEventListener("dragover", () => $("input").classList.add("over"));
  $("input").addEventListener("dragleave", () => $("input").classList.remove("over"));
  document.addEventListener("drop", (event) => { $("input").classList.remove("over"); readFile(event.dataTransfer.files[0]); });
  addEventListener("beforeunload", (event) => {
    if (!state.keepsLabels && [...reviews.values()].some((review) => review.past.length > 0)) event.preventDefault();
  });
}

function setLanguage(language) {
  state.language = language;
  localStorage.setItem("language", language);
  $("language").value = language;
  translate(language);
  if (state.review) drawAll();
}

listen();
setLanguage(chooseLanguage(localStorage.getItem("language")));
$("by").value = localStorage.getItem("by") ?? "";
loadModels();
