// Package rule compiles rules that users wrote, and tries them on steps and states.
//
// The language is that of expr-lang. Only the parser of expr-lang is used: this package
// evaluates the tree itself and pays for every operation before it is done
// (docs/adr/0014).
//
// This package may import the root package, expr-lang, internal/drift/meter,
// internal/drift/observer and internal/drift/phrase.
package rule
