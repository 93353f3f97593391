package agent_test

import (
	"context"
	"errors"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
)

// executor runs one "script" per job exactly once, as the real executor does. It
// waits for a script that was started before.
type executor struct {
	machine *machine
	files   state.Files
	life    *life
}

// errCutOff is the failure of a script that may or may not have started.
var errCutOff = errors.New("cut off")

type journal struct{ Begun, Started, Ended bool }

func (e *executor) journal(folder string) state.Document[journal] {
	return state.Document[journal]{Files: e.files, Name: folder + "/journal.json"}
}

func (e *executor) Check(job bootstrap.Job) ([]string, error) {
	if strings.Contains(string(job.Data), "malformed") {
		return nil, errMalformed
	}
	return nil, nil
}

func (e *executor) Begun(job bootstrap.Job) (bool, error) {
	j, err := e.journal(job.Folder).Load()
	return j.Begun, err
}

func (e *executor) Execute(ctx context.Context, job bootstrap.Job, progress func(string)) ([]string, error) {
	document := e.journal(job.Folder)
	j, err := document.Load()
	if err != nil {
		return nil, err
	}
	j.Begun = true
	if err := document.Save(j); err != nil {
		return nil, err
	}
	progress("runcmd")
	if !j.Started {
		j.Started = true
		if err := document.Save(j); err != nil {
			return nil, err
		}
		e.machine.mu.Lock()
		e.machine.scripts[job.Folder]++
		e.machine.dirty = []string{"file /etc/kubernetes/kubelet.conf"}
		e.machine.mu.Unlock()
		e.machine.started <- struct{}{}
	}
	e.machine.mu.Lock()
	if e.machine.scripts[job.Folder] == 0 {
		e.machine.mu.Unlock()
		return nil, &bootstrap.Failure{Step: "runcmd", Err: errCutOff}
	}
	hold, fail := e.machine.hold, e.machine.fail
	e.machine.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	j.Ended = true
	if err := document.Save(j); err != nil {
		return nil, err
	}
	if fail != nil {
		return nil, &bootstrap.Failure{Step: "runcmd", Err: fail}
	}
	return nil, nil
}

func (e *executor) Abort(string) error {
	e.machine.mu.Lock()
	defer e.machine.mu.Unlock()
	e.machine.aborted++
	return nil
}

// Output is what a script prints that does not keep its secrets.
func (e *executor) Output(folder string) ([]operation.Output, error) {
	j, err := e.journal(folder).Load()
	if err != nil || !j.Started {
		return nil, err
	}
	return []operation.Output{{Name: "runcmd", Text: []byte("joining with abcdef.0123456789abcdef\n")}}, nil
}

func (e *executor) RemoveSecrets(folder string) error { return e.files.Remove(folder + "/script") }

func (e *executor) Executed() ([]string, error) {
	var folders []string
	if e.life != nil {
		files, _, err := e.life.Walk("/state")
		for _, name := range files {
			if folder, isJournal := strings.CutSuffix(strings.TrimPrefix(name, "/state/"), "/journal.json"); isJournal && strings.HasPrefix(folder, "operations/") {
				folders = append(folders, folder)
			}
		}
		return folders, err
	}
	d, ok := e.files.(*disk)
	if !ok {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.content {
		if folder, isJournal := strings.CutSuffix(name, "/journal.json"); isJournal {
			folders = append(folders, folder)
		}
	}
	return folders, nil
}

func (e *executor) Undo(context.Context, string) error {
	e.machine.mu.Lock()
	defer e.machine.mu.Unlock()
	e.machine.undone++
	return nil
}
