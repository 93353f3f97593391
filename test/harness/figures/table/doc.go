// Package table writes figures as sections of a Markdown document, one for each scenario: the figures, the machine, and
// the command that reproduces them.
package table
