// Command apply executes bootstrap data on this host as the agent does, or reverts it:
//
//	apply execute DIRECTORY FORMAT FILE
//	apply undo DIRECTORY
//
// Use it on disposable hosts only. DIRECTORY is an absolute path; the command stores its
// progress there.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/script"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
)

// instanceID is the instance ID in the documents' templates.
const instanceID = "i-oracle"

// fileJournal keeps the progress in a file.
type fileJournal string

func (j fileJournal) Load() (journal.Progress, error) {
	var p journal.Progress
	text, err := os.ReadFile(string(j))
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	err = json.Unmarshal(text, &p)
	return p, err
}

func (j fileJournal) Save(p journal.Progress) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return durable.WriteFile(string(j), text, 0o600)
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("usage: apply execute DIRECTORY FORMAT FILE | apply undo DIRECTORY")
	}
	dir := args[1]
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	options := apply.Options{
		Dir: dir, Root: "/", System: host.LocalSystem{}, Journal: fileJournal(filepath.Join(dir, "journal.json")),
		ScriptCommand: []string{"/proc/self/exe", "run-script"}, InstanceID: instanceID,
	}
	switch {
	case args[0] == "undo":
		p, err := options.Journal.Load()
		if err != nil {
			return err
		}
		return apply.Undo(ctx, p.Manifest, options)
	case args[0] != "execute" || len(args) != 4:
		return fmt.Errorf("unknown command %q", args)
	}
	text, err := os.ReadFile(args[3])
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	vars, err := bootstrap.Variables("/", instanceID, name)
	if err != nil {
		return err
	}
	config, warnings, err := parser.Parse(text, args[2], vars)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Println("warning:", w)
	}
	options.Observe = func(step string) { fmt.Println("step:", step) }
	found, err := apply.Apply(ctx, config, options)
	for _, w := range found {
		fmt.Println("warning:", w)
	}
	if failed, ok := errors.AsType[*apply.Failure](err); ok {
		return fmt.Errorf("%w\n%s", err, failed.Output)
	}
	return err
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "run-script" {
		os.Exit(script.Main(os.Args[2]))
	}
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
