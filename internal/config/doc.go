// Package config reads the relay's settings: one YAML file, CDC_RELAY_* environment variables on top of it, and files
// that hold secrets.
//
// Invariants:
//   - The struct Config is the whole schema. Keys, environment variables, defaults, allowed values and bounds are read
//     from its fields' tags, so none of them is written down twice.
//   - Load reports everything that is wrong at once, each problem with its key and the place where it was set.
//   - No problem and no printed configuration ever holds a secret.
//
// It is imported by cmd only. It knows no component: cmd turns the sections into what each component wants.
package config
