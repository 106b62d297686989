// Open-loop load: requests start at a constant rate whether or not earlier ones have ended, so that a slow service
// cannot slow its own load down (no coordinated omission). Started by run_k6.py, which sets every __ENV value.
import { check } from "k6";
import exec from "k6/execution";
import http from "k6/http";

const queries = JSON.parse(open(__ENV.QUERIES));
const url = `${__ENV.URL}${__ENV.ROUTE}`;

export const options = {
  scenarios: {
    open_loop: {
      executor: "constant-arrival-rate",
      rate: Number(__ENV.RATE_PER_MINUTE),
      timeUnit: "1m",
      duration: `${__ENV.SECONDS}s`,
      preAllocatedVUs: Number(__ENV.CLIENTS),
      maxVUs: Number(__ENV.CLIENTS),
      gracefulStop: "30s",
    },
  },
  summaryTrendStats: ["med", "p(95)", "p(99)", "max"],
};

export default function () {
  const query = queries[exec.scenario.iterationInTest % queries.length];
  const body = JSON.stringify({ query, rerank_k: Number(__ENV.RERANK_K) });
  const response = http.post(url, body, { headers: { "Content-Type": "application/json" }, timeout: "60s" });
  check(response, { "status is 200": (r) => r.status === 200 });
}

export function handleSummary(data) {
  return { [__ENV.SUMMARY]: JSON.stringify(data.metrics) };
}
