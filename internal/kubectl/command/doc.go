// Package command has the commands of `kubectl elemental`: their flags, and what they pass to
// the packages that do the work.
package command
