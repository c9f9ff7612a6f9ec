// OpenAI's SDK for Node: tools, schemas, JSON mode.
import assert from "node:assert/strict";
import test from "node:test";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { client, model, weather } from "./client.mjs";

const question = [{ role: "user", content: "What is the weather in Paris?" }];
const options = { model, tools: [weather], max_tokens: 60, temperature: 0, parallel_tool_calls: false };

test("a required tool call and its result", async () => {
  const answer = await client.chat.completions.create({ ...options, messages: question, tool_choice: "required" });
  const message = answer.choices[0].message;
  assert.equal(answer.choices[0].finish_reason, "tool_calls");
  assert.deepEqual(Object.keys(JSON.parse(message.tool_calls[0].function.arguments)), ["city"]);
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "14 degrees and rain" };
  const after = await client.chat.completions.create({
    ...options, messages: [...question, message, result], tool_choice: "none",
  });
  assert.ok(after.choices[0].message.content);
});

test("a named tool call, streamed through the helper", async () => {
  const tool_choice = { type: "function", function: { name: "get_weather" } };
  const final = await client.chat.completions.stream({ ...options, messages: question, tool_choice }).finalChatCompletion();
  const [call] = final.choices[0].message.tool_calls;
  assert.equal(call.function.name, "get_weather");
  assert.ok(call.id);
  JSON.parse(call.function.arguments);
});

test("parse with a zod schema", async () => {
  const City = z.object({ name: z.string().max(12), population: z.number().int().min(0).max(99999999) });
  const answer = await client.chat.completions.parse({
    model, messages: [{ role: "user", content: "Describe Paris." }], max_tokens: 60, temperature: 0,
    response_format: zodResponseFormat(City, "city"),
  });
  City.parse(answer.choices[0].message.parsed);
});

test("JSON mode", async () => {
  const answer = await client.chat.completions.create({
    model, messages: [{ role: "user", content: 'Answer with {"ok": true} and nothing else.' }], max_tokens: 60, temperature: 0,
    response_format: { type: "json_object" },
  });
  assert.ok(answer.choices[0].message.content.trimStart().startsWith("{"));
});
