// Package table writes figures for people: a section a scenario in a Markdown file, which says what was measured, on
// which machine and how to do it again.
package table
