// speedscope's own importer, run in node: `node speedscope.js BUNDLE FILE`
//
// BUNDLE is its `src/import`, as `scripts/test-peers.sh` bundles it. Prints a JSON array of profiles: name, unit, total,
// and what each frame has of its own.
'use strict';
const fs = require('fs');
const path = require('path');

const [bundle, file] = process.argv.slice(2);
// It tells what it takes a file for.
console.log = console.error;

require(path.resolve(bundle))
  .importProfileGroupFromText(path.basename(file), fs.readFileSync(file, 'utf8'))
  .then((group) => {
    if (!group) throw new Error('speedscope does not know this format');
    const profiles = group.profiles.map((profile) => {
      const frames = Object.create(null);
      profile.forEachFrame((frame) => {
        frames[frame.name] = (frames[frame.name] ?? 0) + frame.getSelfWeight();
      });
      return { name: profile.getName(), unit: profile.getWeightUnit(), total: profile.getTotalWeight(), frames };
    });
    process.stdout.write(JSON.stringify(profiles));
  });
