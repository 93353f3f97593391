// Package journal defines what an operation records: its progress, the intent of
// the current step, the outcome, and the Manifest of changes to undo. It is plain
// data for JSON and holds no secrets.
package journal
