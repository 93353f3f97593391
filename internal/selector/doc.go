// Package selector evaluates host selectors: labels and a CEL expression.
//
// Expressions have the types of the API's Go structs, so that the webhook finds a misspelt
// field when it compiles the expression. Three limits bound their cost: the language
// subset, in which strings and lists can't grow (docs/adr/0029); an estimate of the worst
// case when an expression is compiled; and the actual cost of its evaluations.
package selector
