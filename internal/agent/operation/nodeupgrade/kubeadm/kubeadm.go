package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/script"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

const (
	// limit bounds a run. kubeadm itself waits five minutes for each of four components.
	limit = 40 * time.Minute
	// interval is the time between two looks at the host while kubeadm runs.
	interval = 2 * time.Second
	// maxOutput bounds what an error has of kubeadm's output, in bytes.
	maxOutput = 600
)

// Program runs kubeadm.
type Program struct {
	// ScriptCommand is the command line that calls script.Main, its program by an absolute
	// path.
	ScriptCommand []string
	Clock         retry.Clock
}

// Run runs a command, or waits for the one that was started with this folder, and returns
// its failure with the end of its output. watch is called again and again meanwhile. When
// ctx ends, Run returns an error and the command goes on. folder keeps the output.
func (p Program) Run(ctx context.Context, folder string, args []string, watch func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if started, err := script.IsStarted(folder); err != nil {
		return err
	} else if !started {
		if err := script.Prepare(folder, script.Spec{Body: "exec " + quote(args) + "\n", WorkDir: "/", Env: os.Environ()}); err != nil {
			return err
		}
	}
	type outcome struct {
		result script.Result
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		result, err := script.Run(ctx, folder, p.ScriptCommand...)
		ended <- outcome{result, err}
	}()
	deadline := p.Clock.Now().Add(limit)
	for {
		select {
		case o := <-ended:
			return failure(folder, o.result, o.err)
		case <-p.after(ctx):
		}
		if ctx.Err() == nil && p.Clock.Now().After(deadline) {
			cancel()
			<-ended
			return errors.Join(fmt.Errorf("it did not end within %s", limit), p.Abort(folder))
		}
		watch(ctx)
	}
}

// after is closed after the interval, or when ctx ends.
func (p Program) after(ctx context.Context) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = p.Clock.Wait(ctx, interval)
	}()
	return over
}

// Abort kills the command that was started with this folder, if it runs.
func (p Program) Abort(folder string) error {
	_, err := script.Kill(folder)
	return err
}

// failure describes how the command failed.
func failure(folder string, result script.Result, err error) error {
	switch {
	case errors.Is(err, script.ErrInterrupted):
		return errors.New("it was interrupted, by a reboot or by a kill")
	case err != nil:
		return err
	case result.Problem != "":
		return errors.New(result.Problem)
	case result.ExitCode == 0:
		return nil
	}
	output, err := script.Output(folder)
	text := strings.ReplaceAll(bootstrapdata.Tail(string(output), maxOutput), "\n", "; ")
	return errors.Join(fmt.Errorf("it ended with status %d: %s", result.ExitCode, text), err)
}

// quote writes words for a shell.
func quote(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
