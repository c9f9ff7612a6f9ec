// What the checks share: a client of the gateway under test, named by BATON_URL, that hides no error by trying again.
import OpenAI from "openai";

export const client = new OpenAI({ baseURL: `${process.env.BATON_URL}/v1`, apiKey: "none", maxRetries: 0 });
export const model = process.env.BATON_MODEL;
export const hi = [{ role: "user", content: "Say hello." }];
export const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Current weather of a city",
    parameters: {
      type: "object",
      properties: { city: { type: "string", maxLength: 12 } },
      required: ["city"],
      additionalProperties: false,
    },
  },
};
