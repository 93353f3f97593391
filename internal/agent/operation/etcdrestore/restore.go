package etcdrestore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Steps of a restore, in order, and the step of the way back.
const (
	stepFetch   = "fetch"
	stepCheck   = "check"
	stepPrepare = "prepare"
	stepHalt    = "halt"
	stepCopy    = "copy"
	stepSwap    = "swap"
	stepStart   = "start"
	stepGate    = "gate"
	stepFinish  = "finish"
	stepBack    = "rollback"
)

// untouched are the steps that change nothing that is in use.
func untouched() []string { return []string{stepFetch, stepCheck, stepPrepare} }

const (
	// maxAttempts bounds how often a step that failed is repeated.
	maxAttempts = 3
	// maxFetches bounds how often the download is repeated: lines of sites are bad.
	maxFetches   = 20
	pollInterval = 5 * time.Second
	// readyTimeout is how long the control plane may take to be well, and readyHold for how long
	// it has to be.
	readyTimeout = 10 * time.Minute
	readyHold    = 30 * time.Second
	// maxCause bounds an error in a message, in bytes.
	maxCause = 600
)

// record is the progress of a restore, on disk.
type record struct {
	// Step is the one that may have been begun.
	Step string `json:"step"`
	// Tries counts failures of the step.
	Tries int `json:"tries,omitempty"`
	// Member is the member as its manifest has it, which is not in its place all the time.
	Member member `json:"member,omitzero"`
	// HadData is true if the member had data before.
	HadData bool `json:"hadData,omitempty"`
	// WasReady is true if the control plane was well before.
	WasReady bool `json:"wasReady,omitempty"`
	// FailedStep and Cause say why the way back was begun.
	FailedStep string `json:"failedStep,omitempty"`
	Cause      string `json:"cause,omitempty"`
}

// member is what etcdutl and the steps have to know of the member.
type member struct {
	Name    string `json:"name,omitempty"`
	PeerURL string `json:"peerURL,omitempty"`
	// Data is the folder of its data, a path on the host.
	Data string `json:"data,omitempty"`
}

// restore is a restore while it runs.
type restore struct {
	*Runner

	op       state.Operation
	want     protocol.EtcdRestore
	at       record
	progress func(string)
}

// next runs the recorded step. A nil result means that another step follows.
func (s *restore) next(ctx context.Context) (*operation.Result, error) {
	s.progress(s.at.Step)
	step := s.at.Step
	run, following := s.steps(step)
	if run == nil {
		return nil, fmt.Errorf("the restore is at step %q, which this agent doesn't know: update the agent", step)
	}
	err := run(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("restoring etcd: %w", context.Cause(ctx))
	case state.IsWriteError(err):
		return nil, err
	case err != nil:
		return s.fail(step, err)
	case step == stepBack:
		return s.judge(ctx)
	case step == stepFinish:
		return &operation.Result{State: protocol.StateSucceeded, Message: s.note()}, nil
	}
	s.at.Step, s.at.Tries = following, 0
	return nil, s.save()
}

// steps returns what a step does, and the step that follows.
func (s *restore) steps(step string) (run func(context.Context) error, following string) {
	switch step {
	case stepFetch:
		return s.fetch, stepCheck
	case stepCheck:
		return s.check, stepPrepare
	case stepPrepare:
		return s.prepare, stepHalt
	case stepHalt:
		if s.want.OwnData {
			return s.halt, stepCopy
		}
		return s.halt, stepSwap
	case stepCopy:
		return s.copy, stepSwap
	case stepSwap:
		return s.swap, stepStart
	case stepStart:
		return s.start, stepGate
	case stepGate:
		return s.await, stepFinish
	case stepFinish:
		return s.finish, ""
	case stepBack:
		return s.goBack, ""
	}
	return nil, ""
}

// fetch downloads the snapshot.
func (s *restore) fetch(ctx context.Context) error { return s.Fetcher.Fetch(ctx, s.op.ID, s.want) }

// fail decides what follows the failure of a step. An error means that the step is repeated.
func (s *restore) fail(step string, cause error) (*operation.Result, error) {
	if step == stepFinish {
		return nil, fmt.Errorf("%s: %w", step, cause)
	}
	s.at.Tries++
	isLast := s.at.Tries >= maxAttempts
	switch step {
	case stepFetch:
		if s.at.Tries >= maxFetches {
			result := failed(step, protocol.RestoreChangedNothing, short(cause))
			return &result, nil
		}
		return nil, s.again(step, fmt.Errorf("%w: %w", operation.ErrNothingDone, cause))
	case stepCheck:
		result := failed(step, protocol.RestoreChangedNothing, short(cause))
		return &result, nil
	case stepPrepare:
		if isLast {
			result := failed(step, protocol.RestoreChangedNothing, short(cause))
			return &result, s.discard()
		}
		return nil, s.again(step, fmt.Errorf("%w: %w", operation.ErrNothingDone, cause))
	case stepBack:
		if isLast {
			result := s.broken("the way back failed: " + short(cause))
			return &result, nil
		}
		return nil, s.again(step, cause)
	case stepHalt:
		if !isLast {
			return nil, s.again(step, cause)
		}
	}
	s.Log.Error("A restore of etcd failed; going back", "id", s.op.ID, "step", step, "error", cause)
	s.at.Step, s.at.Tries, s.at.FailedStep, s.at.Cause = stepBack, 0, step, short(cause)
	return nil, s.save()
}

// again has the step repeated.
func (s *restore) again(step string, cause error) error {
	if err := s.save(); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", step, cause)
}

// await asks until the control plane is well for readyHold without a break, or returns the last
// error after readyTimeout.
func (s *restore) await(ctx context.Context) error {
	deadline := s.Clock.Now().Add(readyTimeout)
	var since time.Time
	for {
		began := s.Clock.Now()
		err := s.ControlPlane.Ready(ctx)
		now := s.Clock.Now()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !now.Before(deadline):
			return fmt.Errorf("the control plane was not well within %s: %w", readyTimeout, err)
		case err != nil:
			since = time.Time{}
		case since.IsZero():
			since = began
		case now.Sub(since) >= readyHold:
			return nil
		}
		if err := s.Clock.Wait(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// short returns an error in one line of limited length.
func short(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(text) > maxCause {
		text = strings.ToValidUTF8(text[:maxCause], "") + "…"
	}
	return text
}
