package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"
)

// Names of the documents.
const (
	identityFile   = "identity.json"
	trustFile      = "trust.json"
	planFile       = "plan.json"
	clockFile      = "clock.json"
	operationsFile = "operations.json"
)

// CorruptError is the error of a document that cannot be decoded or is missing.
type CorruptError struct {
	Name string
	Err  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("reading %s in the state directory: %v: restore it from a backup; "+
		"the agent does not start over by itself, because that would make this host another one", e.Name, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// WriteError is the error of a document that could not be made durable. The agent stops
// then: it must not act on a state that it may lose.
type WriteError struct {
	Name string
	Err  error
}

func (e *WriteError) Error() string { return fmt.Sprintf("writing %s: %v", e.Name, e.Err) }

func (e *WriteError) Unwrap() error { return e.Err }

// IsWriteError reports whether something could not be made durable. The agent then
// stops.
func IsWriteError(err error) bool {
	_, ok := errors.AsType[*WriteError](err)
	return ok
}

// Document is a document of type T, for packages that have documents of their own.
type Document[T any] struct {
	Files Files
	Name  string
}

// Load returns what was saved last, or the zero T.
func (d Document[T]) Load() (T, error) {
	var content T
	_, err := read(d.Files, d.Name, &content)
	return content, err
}

// Save makes content durable before it returns.
func (d Document[T]) Save(content T) error { return write(d.Files, d.Name, content) }

// Store has the documents of the agent itself. It is safe for concurrent use.
type Store struct {
	files Files

	mu         sync.Mutex
	identity   Identity
	trust      Trust
	plan       Plan
	clock      Clock
	operations []Operation
}

// Open reads all documents.
func Open(files Files) (*Store, error) {
	s := &Store{files: files}
	var others bool
	for name, into := range map[string]any{
		trustFile: &s.trust, planFile: &s.plan, clockFile: &s.clock, operationsFile: &s.operations,
	} {
		found, err := read(files, name, into)
		if err != nil {
			return nil, err
		}
		others = others || found
	}
	found, err := read(files, identityFile, &s.identity)
	if err != nil {
		return nil, err
	}
	switch {
	case found:
		if err := s.identity.check(); err != nil {
			return nil, &CorruptError{Name: identityFile, Err: err}
		}
	case others:
		return nil, &CorruptError{Name: identityFile, Err: errors.New("it is missing although the host was enrolled")}
	}
	return s, nil
}

// Documents returns the Files for documents of operations and other packages.
func (s *Store) Documents() Files { return s.files }

func read(files Files, name string, into any) (found bool, err error) {
	data, err := files.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s in the state directory: %w", name, err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return false, &CorruptError{Name: name, Err: err}
	}
	return true, nil
}

func write(files Files, name string, document any) error {
	data, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	if err := files.Write(name, append(data, '\n')); err != nil {
		return &WriteError{Name: name, Err: err}
	}
	return nil
}
