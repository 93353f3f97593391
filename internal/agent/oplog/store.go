package oplog

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/redact"
)

const (
	// maxLines bounds the lines of a log: the first keptFirst of them stay, and the last ones.
	maxLines  = 200
	keptFirst = 50
	// maxLine bounds a line, in bytes.
	maxLine = 2 << 10
)

// record is a log on disk.
type record struct {
	ID string `json:"id"`
	// HostID is the host that the operation ran for. Another host on this machine, such as one of
	// another namespace, has no part in it.
	HostID      string                  `json:"hostID,omitempty"`
	ClusterName string                  `json:"clusterName,omitempty"`
	MachineName string                  `json:"machineName,omitempty"`
	State       protocol.OperationState `json:"state"`
	// Lines are the steps and the results. They have no secrets.
	Lines []string `json:"lines,omitempty"`
	// Lost is how many lines were left out.
	Lost int `json:"lost,omitempty"`
	// Output is what programs printed, without secrets; blank until the operation has ended.
	Output string `json:"output,omitempty"`
	// CutBytes is how much of the output was cut.
	CutBytes int64 `json:"cutBytes,omitempty"`
}

// Options are what a Store works with.
type Options struct {
	Files state.Files
	// HostID returns the host that this machine is enrolled as.
	HostID func() string
	Now    func() time.Time
	Log    *slog.Logger
}

// Store keeps logs of operations. An operation does not fail because its log can't be written.
// It is safe for concurrent use.
type Store struct {
	o      Options
	secret *redact.Redactor

	mu sync.Mutex
}

// New returns a Store.
func New(o Options) *Store { return &Store{o: o, secret: redact.ForOutput()} }

// Begin begins the log of an operation, or goes on with it after a restart or a failure.
func (s *Store) Begin(op state.Operation) {
	s.change(op, func(r *record) {
		r.ClusterName, r.MachineName = op.ClusterName, op.MachineName
		r.Output, r.CutBytes = "", 0
		s.add(r, fmt.Sprintf("%s begins, attempt %d", op.Type, op.Attempt))
	})
}

// Add adds a line, such as the name of a step that begins.
func (s *Store) Add(op state.Operation, line string) {
	s.change(op, func(r *record) { s.add(r, line) })
}

// End adds the result and what programs printed.
func (s *Store) End(op state.Operation, result operation.Result, printed []operation.Output) {
	s.change(op, func(r *record) {
		r.State = result.State
		r.Output, r.CutBytes = s.output(printed)
		parts := []string{string(result.State), result.Step, result.Message}
		s.add(r, strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": "))
	})
}

// Read returns the log of the last operation of a type. printed returns what programs of an
// operation that still runs have printed so far.
func (s *Store) Read(kind protocol.OperationType, printed func(id string) []operation.Output) (protocol.HostLog, error) {
	s.mu.Lock()
	r, err := s.document(kind).Load()
	s.mu.Unlock()
	answer := protocol.HostLog{Operation: kind}
	if err != nil {
		return answer, fmt.Errorf("reading the log: %w", err)
	}
	if r.ID == "" || r.HostID != s.o.HostID() {
		return answer, nil
	}
	if r.State == protocol.StateRunning {
		r.Output, r.CutBytes = s.output(printed(r.ID))
	}
	answer.OperationID, answer.State = r.ID, r.State
	text, cut := shorten(r.text(kind), protocol.MaxLogBytes)
	answer.Text, answer.CutBytes = []byte(text), r.CutBytes+cut
	answer.Redactions = strings.Count(text, redact.Mark)
	return answer, nil
}

// change changes the log of an operation on disk.
func (s *Store) change(op state.Operation, change func(*record)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	document := s.document(op.Type)
	r, err := document.Load()
	if err != nil || r.ID != op.ID || r.HostID != s.o.HostID() {
		// A log that can't be read is replaced.
		r = record{ID: op.ID, HostID: s.o.HostID()}
	}
	r.State = protocol.StateRunning
	change(&r)
	if err := document.Save(r); err != nil {
		s.o.Log.Warn("Could not write the log of an operation", "operation", op.Type, "id", op.ID, "error", err)
	}
}

func (s *Store) document(kind protocol.OperationType) state.Document[record] {
	return state.Document[record]{Files: s.o.Files, Name: "logs/" + strings.ToLower(string(kind)) + ".json"}
}

// add adds a line with the time.
func (s *Store) add(r *record, line string) {
	line, _ = s.secret.Text(clean(line))
	line = strings.ReplaceAll(strings.TrimSpace(line), "\n", "\n    ")
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "") + "…"
	}
	r.Lines = append(r.Lines, s.o.Now().UTC().Format(time.RFC3339)+" "+line)
	if extra := len(r.Lines) - maxLines; extra > 0 {
		r.Lines = slices.Delete(r.Lines, keptFirst, keptFirst+extra)
		r.Lost += extra
	}
}
