// Package jinja renders the subset of Jinja2 that bootstrap data uses, with the
// settings of cloud-init: trim_blocks is on, an undefined variable is rendered as
// "CI_MISSING_JINJA_VAR/<name>", and there is no loader, so a template cannot read
// files of the host.
//
// Libraries do not fit for two reasons. They render an undefined variable as an empty
// string, whereas cloud-init writes a visible mark. And they look up methods by name at
// run time, so the linker cannot drop unused code and the agent's binary grows.
//
// Supported: output, comments, raw, if, for, set and do; literals, variables,
// attribute and index access, arithmetic, comparison, logic and conditional
// expressions; the filters, tests and methods listed in filters.go, predicates.go
// and methods.go. Other features of Jinja2 (macros, inheritance, includes)
// are errors with the line. Package cloudconfig calls this package.
package jinja
