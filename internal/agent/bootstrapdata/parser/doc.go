// Package parser selects the parser for the format of bootstrap data. It is the
// only entry point for callers that have the data of a bootstrap Secret.
package parser
