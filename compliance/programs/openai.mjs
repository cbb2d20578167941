// openai-js through the gate: one JSON object on standard output says what came of each thing.
import OpenAI from "openai";

const [url, question, word] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
const messages = [{ role: "user", content: "Say hello." }];
const tool = {
  type: "function",
  function: {
    name: "weather",
    description: "Today's weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};
const told = {};
const whole = await client.chat.completions.create({ model: "rehearsal", messages, max_tokens: 8 });
told.chat = whole.choices[0].message.content;
told.stream = "";
for await (const part of await client.chat.completions.create({ model: "rehearsal", messages, max_tokens: 8, stream: true })) {
  told.stream += part.choices[0]?.delta?.content ?? "";
}
const asked = [{ role: "user", content: question }];
const answer = await client.chat.completions.create({ model: "rehearsal-tools", messages: asked, tools: [tool] });
told.tools = (answer.choices[0].message.tool_calls ?? []).map((call) => call.function.name);
told.embed = (await client.embeddings.create({ model: "rehearsal-embed", input: "hello" })).data[0].embedding.length;
told.responses = (await client.responses.create({ model: "rehearsal", input: "Say hello.", max_output_tokens: 16 })).output_text;
try {
  await client.chat.completions.create({ model: "rehearsal", messages: [{ role: "user", content: word.repeat(20000) }] });
} catch (error) {
  told.over = [error.constructor.name, `${error.code}: ${error.message}`];
}
console.log(JSON.stringify(told));
