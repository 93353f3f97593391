// Command runtime wraps runc for Docker on a machine that withholds capabilities. runc does not start a process that
// requests one of them, so neither docker run --privileged nor docker exec --privileged works, and kind uses both. This
// program removes them from what Docker requests and becomes runc.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

// run changes the files that runc's arguments name and replaces this process by runc.
func run(args []string) error {
	missing, err := engine.MissingCapabilities()
	if err != nil {
		return err
	}
	for i, arg := range args[:max(len(args)-1, 0)] {
		switch arg {
		case "--bundle":
			err = dropIn(filepath.Join(args[i+1], "config.json"), missing, "process")
		case "--process":
			err = dropIn(args[i+1], missing)
		}
		if err != nil {
			return fmt.Errorf("removing capabilities: %w", err)
		}
	}
	program, err := exec.LookPath("runc")
	if err != nil {
		return fmt.Errorf("finding runc: %w", err)
	}
	return syscall.Exec(program, append([]string{program}, args...), os.Environ())
}

// dropIn removes capabilities from a file of the OCI runtime specification. The process is at path in it.
func dropIn(file string, missing []string, path ...string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := drop(content, missing, path...)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	// Docker owns the file, and its permissions remain.
	return os.WriteFile(file, changed, 0o600)
}

// drop removes capabilities, by Docker's names, from a process in JSON and leaves everything else.
func drop(content []byte, missing []string, path ...string) ([]byte, error) {
	var document map[string]any
	decoder := json.NewDecoder(bytes.NewReader(content))
	// Limits have more digits than a float64 keeps.
	decoder.UseNumber()
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	process := document
	for _, field := range path {
		process, _ = process[field].(map[string]any)
	}
	sets, _ := process["capabilities"].(map[string]any)
	for name, set := range sets {
		granted, _ := set.([]any)
		sets[name] = slices.DeleteFunc(granted, func(capability any) bool {
			return slices.ContainsFunc(missing, func(m string) bool { return capability == "CAP_"+m })
		})
	}
	return json.Marshal(document)
}
