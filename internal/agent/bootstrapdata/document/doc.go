// Package document reads YAML 1.1, as PyYAML resolves it, and JSON. Both become the
// same tree of values, in which each value has its line. A Decoder turns values into Go types and collects
// the first error and all warnings.
//
// Packages cloudconfig and ignition use it. It contains no rules of either format.
package document
