package nodeupgrade

import (
	"errors"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/script"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
)

// Output returns what kubeadm has printed in each attempt.
func (r *Runner) Output(op state.Operation) ([]operation.Output, error) {
	at, err := r.document(op).Load()
	failures := []error{err}
	var outputs []operation.Output
	for attempt := 1; attempt <= at.Attempt; attempt++ {
		text, err := script.Output(r.attemptFolder(op, attempt))
		failures = append(failures, err)
		outputs = append(outputs, operation.Output{Name: fmt.Sprintf("kubeadm, attempt %d", attempt), Text: text})
	}
	return outputs, errors.Join(failures...)
}
