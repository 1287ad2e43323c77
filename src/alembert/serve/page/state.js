// What all parts of the page share: models, the open document, the words of the language, and the sentence of the moment.
import { $ } from "./dom.js";
import { WORDS } from "./words.js";

export const state = {
  models: [], routes: new Set(), keepsLabels: false, language: "en",
  documents: [], // {id, name, text, record, review, relations, isSeen, isAudited, problem}
  open: null, // the document that is shown
  chosen: null, // the number of the chosen entity
  types: [], // labels, in the order of their keys
};

export const words = () => WORDS[state.language];
export const say = (sentence) => { $("status").textContent = sentence; };
export const percent = (score) => Math.round(100 * score);
export const plain = (number) => number.toFixed(2).replace("-", "−");
export const signed = (number) => (number < 0 ? "" : "+") + plain(number);
export const review = () => state.open?.review ?? null;
export const chosen = () => review()?.find(state.chosen);
export const colour = (label) => Math.max(0, state.types.indexOf(label));
export const modelNamed = (name) => state.models.find((model) => model.name === name);
export const hasTask = (model, kind) => model.tasks.some((task) => task.kind === kind);
export const describe = (entity) => words().describe(entity.label, percent(entity.score), words()[entity.state] ?? "");

/** Say what went wrong: the sentence of the service, or that it cannot be reached. */
export function report(problem) {
  if (problem.status === 401) $("token-form").hidden = false;
  say(problem.status === undefined ? words().failed : problem.message);
  if (problem.status === undefined && !(problem instanceof TypeError && /fetch/i.test(problem.message))) console.error(problem);
}
