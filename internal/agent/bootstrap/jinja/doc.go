// Package jinja renders the subset of Jinja2 that bootstrap data uses, the
// way cloud-init configures it: trim_blocks on, no loader (so a template can
// read no file of the host), and undefined variables rendered as
// "CI_MISSING_JINJA_VAR/<name>" instead of failing.
//
// It is written here rather than taken from a library for two reasons. The
// libraries render an undefined variable as nothing, where cloud-init leaves
// a mark that a person can find; and they look methods up by name at run time,
// which keeps the linker from dropping unused code from the whole agent.
//
// Supported: output, comments, raw, if, for, set and do; literals, variables,
// attribute and index access, arithmetic, comparison, logic and conditional
// expressions; the filters, tests and methods listed in filters.go, predicates.go
// and methods.go. Whatever else Jinja2 knows (macros, inheritance, includes)
// is an error that names the line; nothing is dropped in silence.
package jinja
