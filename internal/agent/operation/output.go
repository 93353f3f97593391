package operation

import "github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"

// Output is what a program of an operation has printed.
type Output struct {
	// Name of the program or the step.
	Name string
	// Text may have secrets.
	Text []byte
}

// Printer is a Runner whose operations run programs that print. Runners of other operations do
// not implement it.
type Printer interface {
	// Output returns what programs of the operation have printed so far, the first one first. The
	// operation may run meanwhile.
	Output(op state.Operation) ([]Output, error)
}
