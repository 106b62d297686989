// Draws /openapi.json: each operation with its fields, an example of its response, and its problems.

function element(name, { text, className } = {}, ...children) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function table(rows) {
  const body = element("tbody", {}, ...rows.map((cells) => element("tr", {}, ...cells.map((text) => element("td", { text })))));
  return element("table", {}, body);
}

function typeOf(schema) {
  const variants = schema.anyOf ?? [schema];
  return variants.map((each) => each.enum?.join(" | ") ?? (each.items ? "array" : each.type) ?? "object").join(" | ");
}

function fieldRows(description, operation) {
  const reference = operation.requestBody?.content["application/json"]?.schema.$ref;
  if (!reference) return [];
  const schema = description.components.schemas[reference.split("/").pop()];
  return Object.entries(schema.properties).map(([name, field]) => {
    const required = schema.required?.includes(name);
    const about = [field.description ?? "", required ? "Required." : `Default: ${JSON.stringify(field.default ?? null)}.`];
    return [name, typeOf(field), about.join(" ")];
  });
}

function titles({ content }) {
  return Object.values(content["application/problem+json"].examples).map(({ value }) => value.title).join("; ");
}

function operationCard(description, path, method, operation) {
  const card = element("section", { className: "operation" });
  card.append(element("h2", { text: `${method.toUpperCase()} ${path}` }), element("p", { text: operation.description ?? "" }));
  const [scope] = operation.security?.[0]?.bearer ?? [];
  if (scope) card.append(element("p", { className: "place", text: `With keys, it needs one with the scope ${scope}.` }));
  const fields = fieldRows(description, operation);
  if (fields.length) card.append(element("h3", { text: "Body" }), table(fields));
  const kinds = Object.keys(operation.requestBody?.content ?? {}).filter((kind) => kind !== "application/json");
  if (kinds.length) card.append(element("h3", { text: "Body" }), element("p", { text: kinds.join(", ") }));
  const done = Object.entries(operation.responses).find(([status]) => status < "300")?.[1];
  const example = done?.content?.["application/json"]?.example;
  if (example) card.append(element("h3", { text: "Response" }), element("pre", { text: JSON.stringify(example, null, 2) }));
  const problems = Object.entries(operation.responses).filter(([status]) => status >= "400");
  if (problems.length) card.append(element("h3", { text: "Problems" }), table(problems.map(([status, problem]) => [status, titles(problem)])));
  return card;
}

async function draw() {
  const main = document.getElementById("operations");
  try {
    const description = await (await fetch("/openapi.json")).json();
    main.replaceChildren(...Object.entries(description.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => operationCard(description, path, method, operation))));
  } catch {
    main.replaceChildren(element("p", { className: "fault", text: "The description cannot be loaded." }));
  }
  main.removeAttribute("aria-busy");
}

draw();
