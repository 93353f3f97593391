package bootstrap_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/script"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// runnerCommand makes the test's program the runner of scripts.
const runnerCommand = "run-script"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == runnerCommand {
		os.Exit(script.Main(os.Args[2]))
	}
	os.Exit(m.Run())
}

// programs are those of a host that has none.
type programs struct{}

func (programs) Run(context.Context, host.Command) (string, error) { return "", errors.ErrUnsupported }

func newExecutor(t *testing.T) (*bootstrap.LocalExecutor, *state.Dir, string) {
	t.Helper()
	files, err := state.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &bootstrap.LocalExecutor{
		Files: files, Dir: files.Path(""), Root: "/", System: programs{}, ScriptCommand: []string{self, runnerCommand},
	}, files, t.TempDir()
}

func job(id, data string) bootstrap.Job {
	op := state.Operation{Operation: protocol.Operation{Type: protocol.OperationBootstrap, ID: id}}
	return bootstrap.Job{
		Folder: op.Folder(), Data: []byte("## template: jinja\n#cloud-config\n" + data),
		Format: protocol.FormatCloudConfig, ID: id, Hostname: "edge-1",
	}
}

func none(string) {}

func TestExecutesOnceAndTakesBack(t *testing.T) {
	e, _, dir := newExecutor(t)
	j := job("a", "runcmd:\n- echo {{ v1.instance_id }} {{ ds.meta_data.local_hostname }} {{ ds.meta_data['instance-id'] }} >> "+dir+"/ran\n")
	if warnings, err := e.Check(j); err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	if begun, err := e.Begun(j); begun || err != nil {
		t.Fatalf("begun before it began: %v", err)
	}
	var steps []string
	for range 2 {
		if _, err := e.Execute(t.Context(), j, func(step string) { steps = append(steps, step) }); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "ran")); err != nil || string(got) != "a edge-1 a\n" {
		t.Errorf("the script wrote %q: %v", got, err)
	}
	if len(steps) == 0 || steps[len(steps)-1] != "runcmd" {
		t.Errorf("steps %q", steps)
	}
	if begun, err := e.Begun(j); !begun || err != nil {
		t.Errorf("not begun: %v", err)
	}
	if folders, err := e.Executed(); err != nil || len(folders) != 1 || folders[0] != j.Folder {
		t.Errorf("executed %q: %v", folders, err)
	}
	if err := e.RemoveSecrets(j.Folder); err != nil {
		t.Fatal(err)
	}
	if found := find(t, e.Dir, "edge-1"); len(found) > 0 {
		t.Errorf("the script is still in %q", found)
	}
	for range 2 {
		if err := e.Undo(t.Context(), j.Folder); err != nil {
			t.Error(err)
		}
	}
}

func TestFailureSaysWhatTheScriptPrinted(t *testing.T) {
	e, _, _ := newExecutor(t)
	_, err := e.Execute(t.Context(), job("a", "runcmd:\n- echo no such luck\n- exit 3\n"), none)
	var failure *bootstrap.Failure
	if !errors.As(err, &failure) || failure.Step != "runcmd" || !strings.Contains(err.Error(), "status 3") || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("got %v", err)
	}
}

// The last line says why: the message of a script that prints much ends with it.
func TestFailureFitsIntoAMessage(t *testing.T) {
	e, _, _ := newExecutor(t)
	script := "runcmd:\n- seq -f 'line %g of the output' 1000\n- echo no such luck\n- exit 3\n"
	_, err := e.Execute(t.Context(), job("a", script), none)
	var failure *bootstrap.Failure
	if !errors.As(err, &failure) {
		t.Fatal(err)
	}
	message := failure.Err.Error()
	if len(message) > protocol.MaxMessageBytes || len(message) < protocol.MaxMessageBytes-100 {
		t.Errorf("the message has %d bytes", len(message))
	}
	if !strings.Contains(message, "status 3: line ") || !strings.HasSuffix(message, "line 1000 of the output\nno such luck") {
		t.Errorf("got %s", message)
	}
}

func TestCheckRefusesTheWholeDocument(t *testing.T) {
	e, _, _ := newExecutor(t)
	if _, err := e.Check(job("a", "runcmd: [\n")); err == nil || !strings.Contains(err.Error(), "nothing of which") {
		t.Errorf("got %v", err)
	}
	if warnings, err := e.Check(job("a", "unheard_of: 1\n")); err != nil || len(warnings) != 1 {
		t.Errorf("got %q: %v", warnings, err)
	}
}

func TestAbortEndsAScriptThatHangs(t *testing.T) {
	e, _, dir := newExecutor(t)
	for _, pipe := range []string{"begun", "never"} {
		if err := syscall.Mkfifo(filepath.Join(dir, pipe), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The script waits for somebody to write, and nobody ever does.
	j := job("a", "runcmd:\n- echo > "+dir+"/begun\n- cat "+dir+"/never\n- touch "+dir+"/after\n")
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := e.Execute(ctx, j, none)
		result <- err
	}()
	if _, err := os.ReadFile(filepath.Join(dir, "begun")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled job ends with %v", err)
	}
	if err := e.Abort(j.Folder); err != nil {
		t.Fatal(err)
	}
	_, err := e.Execute(t.Context(), j, none)
	var failure *bootstrap.Failure
	if !errors.As(err, &failure) || exists(dir+"/after") {
		t.Errorf("an aborted job ends with %v", err)
	}
	if err := e.Abort(j.Folder); err != nil {
		t.Errorf("aborting what is over: %v", err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// find lists the files below dir that contain text.
func find(t *testing.T, dir, text string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), text) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
