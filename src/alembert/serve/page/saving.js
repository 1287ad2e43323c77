// Decisions on their way to the service: one request after the other, in the order in which people made them.
import { ask } from "./client.js";
import { $ } from "./dom.js";
import { say, state, words } from "./state.js";

let saving = Promise.resolve();
let saved = 0;

/** Append decisions that were made at once to the file of --label. */
export function saveDecisions(review, decisions) {
  if (!state.keepsLabels || decisions.length === 0) return;
  const request = review.request(decisions, $("by").value);
  saving = saving.then(() => ask("/v1/decisions", request)).then(tell).catch((problem) => say(words().not_saved + problem.message));
}

function tell() {
  saved += 1;
  $("saved").dataset.count = saved;
  $("saved").textContent = words().saved(saved);
}
