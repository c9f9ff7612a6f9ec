// Vercel's AI SDK through a gateway with scripted models, named by BATON_URL, BATON_KEY and BATON_PLACE (before each model).
import assert from "node:assert/strict";
import test from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";

const { BATON_URL, BATON_KEY, BATON_PLACE, BATON_TEXT } = process.env;
const provider = createOpenAICompatible({
  name: "baton",
  baseURL: `${BATON_URL}/v1`,
  apiKey: BATON_KEY,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const ask = (name) => ({ model: provider(`${BATON_PLACE}${name}`), prompt: "hi", maxRetries: 0 });
const weather = tool({
  description: "How the weather is in a city",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `rain in ${city}`,
});
const Person = z.object({ name: z.string(), age: z.number().int() });
const bytes = new TextEncoder().encode(BATON_TEXT).length;

test("generateText", async () => {
  const { text, finishReason, usage } = await generateText(ask("plain"));
  assert.equal(text, BATON_TEXT);
  assert.equal(finishReason, "stop");
  assert.equal(usage.outputTokens, bytes);
});

test("streamText", async () => {
  const streamed = streamText(ask("plain"));
  let text = "";
  for await (const piece of streamed.textStream) text += piece;
  assert.equal(text, BATON_TEXT);
  assert.equal((await streamed.usage).outputTokens, bytes);
  assert.equal(await streamed.finishReason, "stop");
});

test("generateText calls a tool and goes on with its result", async () => {
  const { text, steps } = await generateText({ ...ask("tools"), tools: { weather }, stopWhen: stepCountIs(3) });
  assert.deepEqual(steps[0].toolCalls.map(({ toolName, input }) => [toolName, input]), [["weather", { city: "Köln" }]]);
  assert.equal(steps[0].toolResults[0].output, "rain in Köln");
  assert.equal(steps.length, 2);
  assert.equal(text, "It rains.");
});

test("streamText calls a tool and goes on with its result", async () => {
  const streamed = streamText({ ...ask("tools"), tools: { weather }, stopWhen: stepCountIs(3) });
  let text = "";
  for await (const piece of streamed.textStream) text += piece;
  assert.equal(text, "Let me see.It rains.");
  const [first] = await streamed.steps;
  assert.deepEqual(first.toolCalls[0].input, { city: "Köln" });
});

test("generateObject", async () => {
  const { object } = await generateObject({ ...ask("json"), schema: Person });
  assert.deepEqual(object, { name: "Ada", age: 36 });
});

test("streamObject", async () => {
  const streamed = streamObject({ ...ask("json"), schema: Person });
  for await (const partial of streamed.partialObjectStream) assert.ok(partial);
  assert.deepEqual(await streamed.object, { name: "Ada", age: 36 });
});

test("embedMany", async () => {
  const model = provider.textEmbeddingModel(`${BATON_PLACE}plain`);
  const { embeddings } = await embedMany({ model, values: ["a cat", "tax law"], maxRetries: 0 });
  assert.deepEqual(embeddings.map((vector) => vector.length), [16, 16]);
});

test("errors carry our words", async () => {
  await assert.rejects(generateText({ ...ask("plain"), temperature: 9 }), (error) => {
    assert.equal(error.statusCode, 400);
    assert.match(error.message, /temperature/);
    return true;
  });
});
