package state

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// LocalPrefix is the prefix of the ID of an operation that a person began on the host.
// The manager does not know such an operation.
const LocalPrefix = "local-"

// maxOperations limits the operations that are stored.
const maxOperations = 128

// Operation is an operation that the agent has begun, and its result.
type Operation struct {
	protocol.Operation

	// Hostname and ProviderID are what the plan desired when the operation
	// began, so that it can be resumed without a manager.
	Hostname   string `json:"hostname,omitempty"`
	ProviderID string `json:"providerID,omitempty"`

	State   protocol.OperationState `json:"state"`
	Step    string                  `json:"step,omitempty"`
	Message string                  `json:"message,omitempty"`
	// Erased is the result for each disk, if the operation erased disks.
	Erased     []protocol.ErasedDisk `json:"erased,omitempty"`
	StartedAt  time.Time             `json:"startedAt"`
	FinishedAt time.Time             `json:"finishedAt,omitzero"`
	// Acknowledged is true once the manager has recorded State.
	Acknowledged bool `json:"acknowledged,omitempty"`
	// Attempt counts from 1.
	Attempt int `json:"attempt"`
}

// Done reports whether the operation must not run again. A reset that failed is not done.
func (o Operation) Done() bool {
	return o.State.Final() && !(o.Type == protocol.OperationReset && o.State == protocol.StateFailed)
}

// Reportable reports whether the result must still be reported to the manager.
func (o Operation) Reportable() bool {
	return o.State.Final() && !o.Acknowledged && !strings.HasPrefix(o.ID, LocalPrefix)
}

// Report converts the operation for the manager.
func (o Operation) Report() protocol.OperationReport {
	report := protocol.OperationReport{
		Type: o.Type, ID: o.ID, State: o.State, Step: o.Step, Message: o.Message, StartedAt: &o.StartedAt,
		Erased: o.Erased,
	}
	if !o.FinishedAt.IsZero() {
		report.FinishedAt = &o.FinishedAt
	}
	return report
}

var plainName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,100}$`)

// Folder is the folder of the operation's own documents within the store.
func (o Operation) Folder() string {
	id := o.ID
	if !plainName.MatchString(id) {
		sum := sha256.Sum256([]byte(id))
		id = "id-" + hex.EncodeToString(sum[:16])
	}
	return "operations/" + strings.ToLower(string(o.Type)) + "-" + id
}

// Operations returns all stored operations, oldest first.
func (s *Store) Operations() []Operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.operations)
}

// Operation returns an operation that was begun.
func (s *Store) Operation(kind protocol.OperationType, id string) (Operation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.index(kind, id)
	if i < 0 {
		return Operation{}, false
	}
	return s.operations[i], true
}

// Begin records that an operation begins, or begins again. It does not change an operation
// that is done.
func (s *Store) Begin(op Operation) (Operation, error) {
	var begun Operation
	err := s.changeOperations(func(ops []Operation) []Operation {
		i := slices.IndexFunc(ops, op.same)
		if i < 0 {
			op.State, op.Attempt = protocol.StateRunning, 1
			begun = op
			return append(ops, op)
		}
		if !ops[i].Done() {
			ops[i].State, ops[i].Acknowledged, ops[i].FinishedAt = protocol.StateRunning, false, time.Time{}
			ops[i].Step, ops[i].Message, ops[i].Erased = "", "", nil
			ops[i].Attempt++
		}
		begun = ops[i]
		return ops
	})
	return begun, err
}

// Finish records a result, unless the operation is done.
func (s *Store) Finish(op Operation) error {
	return s.changeOperations(func(ops []Operation) []Operation {
		i := slices.IndexFunc(ops, op.same)
		if i < 0 {
			return prune(append(ops, op))
		}
		if !ops[i].Done() {
			ops[i] = op
		}
		return prune(ops)
	})
}

// Adopt records an operation that the manager knows to have succeeded, unless this host knows it: the
// host was another machine then. It is not run here, also when the manager has lost its status.
func (s *Store) Adopt(known protocol.Operation) error {
	if known.SucceededAt == nil {
		return nil
	}
	at := *known.SucceededAt
	op := Operation{Operation: known, State: protocol.StateSucceeded, StartedAt: at, FinishedAt: at, Acknowledged: true}
	return s.changeOperations(func(ops []Operation) []Operation {
		if slices.ContainsFunc(ops, op.same) {
			return ops
		}
		return prune(append(ops, op))
	})
}

// Acknowledge records that the manager has recorded a result. It ignores the result of an
// earlier attempt.
func (s *Store) Acknowledge(reported Operation) error {
	return s.changeOperations(func(ops []Operation) []Operation {
		i := slices.IndexFunc(ops, reported.same)
		if i >= 0 && ops[i].State == reported.State && ops[i].FinishedAt.Equal(reported.FinishedAt) {
			ops[i].Acknowledged = true
		}
		return ops
	})
}

// Forget removes an operation of which nothing was executed.
func (s *Store) Forget(op Operation) error {
	return s.changeOperations(func(ops []Operation) []Operation {
		return slices.DeleteFunc(ops, op.same)
	})
}

func (o Operation) same(other Operation) bool { return o.Type == other.Type && o.ID == other.ID }

func (s *Store) index(kind protocol.OperationType, id string) int {
	return slices.IndexFunc(s.operations, func(o Operation) bool { return o.Type == kind && o.ID == id })
}

func (s *Store) changeOperations(change func([]Operation) []Operation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := change(slices.Clone(s.operations))
	if reflect.DeepEqual(next, s.operations) {
		return nil
	}
	if err := write(s.files, operationsFile, next); err != nil {
		return fmt.Errorf("recording an operation: %w", err)
	}
	s.operations = next
	return nil
}

// prune removes the oldest acknowledged operations.
func prune(ops []Operation) []Operation {
	excess := len(ops) - maxOperations
	return slices.DeleteFunc(ops, func(o Operation) bool {
		if excess > 0 && o.Done() && o.Acknowledged {
			excess--
			return true
		}
		return false
	})
}
