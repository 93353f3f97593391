package etcdrestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Steps of a restore, in order, and the step of the way back.
const (
	stepRebuild = "rebuild"
	stepFetch   = "fetch"
	stepCheck   = "check"
	stepPrepare = "prepare"
	stepHalt    = "halt"
	stepCopy    = "copy"
	stepSwap    = "swap"
	stepKubelet = "kubelet"
	stepStart   = "start"
	stepGate    = "gate"
	stepNodes   = "nodes"
	stepFinish  = "finish"
	stepBack    = "rollback"
)

// untouched are the steps that change nothing that is in use.
func untouched() []string { return []string{stepRebuild, stepFetch, stepCheck, stepPrepare} }

const (
	// maxFetches bounds how often the download is repeated: lines of sites are bad.
	maxFetches   = 20
	pollInterval = 5 * time.Second
	// readyTimeout is how long the control plane may take to be well, and readyHold for how long
	// it has to be.
	readyTimeout = 10 * time.Minute
	readyHold    = 30 * time.Second
)

// record is the progress of a restore, on disk.
type record struct {
	sequence.Position

	// Member is the member as its manifest has it, which is not in its place all the time.
	Member member `json:"member,omitzero"`
	// HadData is true if the member had data before.
	HadData bool `json:"hadData,omitempty"`
	// WasReady is true if the control plane was well before.
	WasReady bool `json:"wasReady,omitempty"`
	// Examined is true once a rebuild knows what the host had: HadFiles is true if it had
	// /etc/kubernetes.
	Examined bool `json:"examined,omitempty"`
	HadFiles bool `json:"hadFiles,omitempty"`
	// NodesNote says which Nodes were deleted or are left; it is part of the result's message.
	NodesNote string `json:"nodesNote,omitempty"`
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

	op   state.Operation
	want protocol.EtcdRestore
	at   record
}

// Position is where the restore is.
func (s *restore) Position() *sequence.Position { return &s.at.Position }

// Step returns what a step does, and what follows.
func (s *restore) Step(name string) sequence.Step {
	switch name {
	case stepRebuild:
		if s.want.Uploaded {
			return sequence.Step{Run: rebuild{s}.controlPlane, Next: stepFetch}
		}
		return sequence.Step{Run: rebuild{s}.controlPlane, Next: stepCheck}
	case stepFetch:
		return sequence.Step{Run: s.fetch, Next: stepCheck}
	case stepCheck:
		return sequence.Step{Run: s.check, Next: stepPrepare}
	case stepPrepare:
		return sequence.Step{Run: s.prepare, Next: stepHalt}
	case stepHalt:
		if s.want.OwnData {
			return sequence.Step{Run: s.halt, Next: stepCopy}
		}
		return sequence.Step{Run: s.halt, Next: stepSwap}
	case stepCopy:
		return sequence.Step{Run: s.copy, Next: stepSwap}
	case stepSwap:
		if s.want.Rebuild {
			return sequence.Step{Run: s.swap, Next: stepKubelet}
		}
		return sequence.Step{Run: s.swap, Next: stepStart}
	case stepKubelet:
		return sequence.Step{Run: rebuild{s}.kubelet, Next: stepStart}
	case stepStart:
		return sequence.Step{Run: s.start, Next: stepGate}
	case stepGate:
		return sequence.Step{Run: s.await, Next: stepNodes}
	case stepNodes:
		return sequence.Step{Run: formerNodes{s}.remove, Next: stepFinish}
	case stepFinish:
		return sequence.Step{Run: s.finish, End: sequence.Succeed(s.note)}
	case stepBack:
		return sequence.Step{Run: s.goBack, End: s.judge}
	}
	return sequence.Step{}
}

// fetch downloads the snapshot.
func (s *restore) fetch(ctx context.Context) error { return s.Fetcher.Fetch(ctx, s.op.ID, s.want) }

// Fail decides what follows the failure of a step.
func (s *restore) Fail(ctx context.Context, cause error) (*operation.Result, error) {
	step := s.at.Step
	if step == stepFinish {
		return nil, fmt.Errorf("%s: %w", step, cause)
	}
	s.at.Tries++
	isLast := s.at.Tries >= sequence.MaxAttempts
	isFetch := step == stepFetch || step == stepRebuild // from the manager, or the destination
	_, isFinal := errors.AsType[sequence.Final](cause)
	switch {
	case step == stepCheck, isFetch && s.at.Tries >= maxFetches, step == stepRebuild && isFinal:
		return rebuild{s}.fail(ctx, step, cause)
	case step == stepPrepare && isLast:
		if err := s.discard(); err != nil {
			return nil, err
		}
		return rebuild{s}.fail(ctx, step, cause)
	case step == stepBack && isLast:
		return s.broken("the way back failed: " + sequence.Short(cause)), nil
	case isFetch, step == stepPrepare, step == stepBack, (step == stepHalt || step == stepKubelet) && !isLast:
		return nil, sequence.Again(s, cause)
	}
	s.Log.Error("A restore of etcd failed; going back", "id", s.op.ID, "step", step, "error", cause)
	s.at.GoBack(stepBack, cause)
	return nil, s.Save()
}

// await waits until the control plane is well.
func (s *restore) await(ctx context.Context) error {
	wait := sequence.Wait{Clock: s.Clock, Limit: readyTimeout, Hold: readyHold, Interval: pollInterval}
	return wait.Await(ctx, s.ControlPlane.Ready)
}
