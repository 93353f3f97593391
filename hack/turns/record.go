package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// record has the last pass of each turn, by the turn's name.
type record map[string]pass

// pass is one run of a turn in which it passed.
type pass struct {
	At   time.Time     `json:"at"`
	Took time.Duration `json:"took"`
}

// takes returns how long a turn is expected to take: as long as it took last, if that is known.
func (r record) takes(t turn) time.Duration {
	if last, found := r[t.name]; found {
		return last.Took
	}
	return t.takes
}

// read reads a record. A missing file is an empty record.
func read(file string) (record, error) {
	r := record{}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record of turns: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("reading the record of turns %s (remove it to begin a new one): %w", file, err)
	}
	return r, nil
}

// write writes the record as a whole: a program that dies meanwhile leaves the former one.
func (r record) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the record of turns: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("making the folder of the record of turns: %w", err)
	}
	if err := os.WriteFile(file+".new", append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the record of turns: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("replacing the record of turns: %w", err)
	}
	return nil
}
