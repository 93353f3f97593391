// Package selector decides by labels and by a CEL expression whether a host is
// of the kind that a machine asks for.
//
// Expressions are typed by the API's own Go types, so that a misspelt field is
// found when an expression is compiled, which admission does. They are bounded
// three times: by what the language offers here (there is no way to make strings
// or lists grow, docs/adr/0029), by an estimate of the worst case when they are
// compiled, and by counting while they run.
package selector
