// Checks descriptions of APIs by Redocly's recommended rules. Every error and warning
// is printed; an error fails the check.
import { readFileSync } from 'node:fs';
import { createConfig, lintFromString } from '@redocly/openapi-core';

const config = await createConfig({ extends: ['recommended'] });
for (const file of process.argv.slice(2)) {
  const problems = await lintFromString({ source: readFileSync(file, 'utf8'), absoluteRef: file, config });
  for (const p of problems) {
    console.log(`${file}: ${p.severity}: ${p.ruleId}: ${p.message.split('\n')[0]} (${p.location[0]?.pointer ?? ''})`);
    if (p.severity === 'error') process.exitCode = 1;
  }
}
