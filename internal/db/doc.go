// Package db is the store as the daemon sees it: one type with all methods for agents, runs, steps,
// operations, events and prompts. The layers below it have packages of their own: the engine
// (db/sqlite), the transaction and its rows (db/ledger), drift (db/driftlog), checkpoints
// (db/saves), LangGraph's threads (db/langgraph), export and import (db/copy) and verify
// (db/audit). DESIGN.md in this folder says how and why.
//
// It may import the root package, the packages below it, internal/wellformed, for its words internal/drift/phrase and, for the types of
// values that callers pass to it, internal/drift/observer, internal/liveness, internal/resume,
// internal/retention and internal/survey.
package db
