package status

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/facts"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// RecordEnrolment writes the status of a host that has enrolled with the key. It has all
// conditions already, so that no controller has to write after it.
func (r *Recorder) RecordEnrolment(ctx context.Context, key types.NamespacedName, fingerprint string, request *protocol.EnrolRequest) (*infrav1.ElementalHost, error) {
	return r.write(ctx, key, alwaysWrite, func(host *infrav1.ElementalHost) error {
		if !hoststore.AcceptsKey(host, fingerprint) {
			return problem.UnknownHost()
		}
		host.Status.KeyFingerprint = fingerprint
		facts.SetEnrolled(host, request, r.clock.Now())
		facts.SetConnection(host, infrav1.ConnectionConnected, r.clock.Now())
		return nil
	})
}

// RecordReport writes the facts of a report of the host that has the key. It returns when
// they are durable, except deferred progress and evidence. Those may be lost: a host
// reports everything again after it has reconnected. The write budget may refuse a report;
// the host sends it again later.
func (r *Recorder) RecordReport(ctx context.Context, key types.NamespacedName, fingerprint string, report *protocol.Report) error {
	ops, err := facts.OperationsOf(report.Operations)
	if err != nil {
		return err
	}
	endpoint, err := facts.EndpointOf(report.Endpoint, r.clock.Now())
	if err != nil {
		return err
	}
	var endpointWritten, endpointChanged bool
	var recorded []infrav1.HostOperation
	_, err = r.write(ctx, key, ifAllowed, func(host *infrav1.ElementalHost) error {
		if !hoststore.AcceptsKey(host, fingerprint) {
			return problem.UnknownHost()
		}
		facts.SetReported(host, report, r.clock.Now())
		if recorded, err = r.setOperations(ctx, host, key, ops); err != nil {
			return err
		}
		endpointWritten, endpointChanged, err = r.setEndpoint(ctx, host, endpoint)
		return err
	})
	if err != nil {
		return err
	}
	for _, op := range recorded {
		r.sessions.ProgressWritten(key, op)
	}
	if endpointWritten {
		r.sessions.EvidenceWritten(key, endpoint, endpointChanged)
	}
	return nil
}

// setOperations sets reported operations in the host's status, except deferred progress.
// It returns those that it set. A bootstrap that failed because of the cluster's endpoint
// does not count towards a quarantine of the host.
func (r *Recorder) setOperations(ctx context.Context, host *infrav1.ElementalHost, key types.NamespacedName, ops []facts.Operation) ([]infrav1.HostOperation, error) {
	var recorded []infrav1.HostOperation
	for _, op := range ops {
		before, failures := slices.Clone(host.Status.Operations), host.Status.Failures
		if err := facts.RecordOperation(host, op.HostOperation, r.clock.Now()); err != nil {
			return nil, err
		}
		if equality.Semantic.DeepEqual(before, host.Status.Operations) {
			continue
		}
		if op.State == infrav1.OperationRunning && r.sessions.DeferProgress(key, op.HostOperation) {
			host.Status.Operations = before
			continue
		}
		if op.State == infrav1.OperationFailed && host.Status.Failures != failures {
			excused, err := r.clusters.EndpointExplainsFailure(ctx, host)
			if err != nil {
				return nil, err
			}
			if excused {
				host.Status.Failures = failures
			}
		}
		if len(op.Erased) > 0 {
			host.Status.Erasure = &infrav1.HostErasure{OperationID: op.ID, Disks: op.Erased}
		}
		recorded = append(recorded, op.HostOperation)
	}
	return recorded, nil
}

// setEndpoint sets the accepted part of a report about the control plane endpoint in the
// host's status, unless it has to wait. written: the status agrees with the report;
// changed: it did not before.
func (r *Recorder) setEndpoint(ctx context.Context, host *infrav1.ElementalHost, reported *infrav1.HostEndpoint) (written, changed bool, err error) {
	if reported == nil || !facts.MayReportEndpoint(host) {
		return false, false, nil
	}
	after, err := r.acceptedEndpoint(ctx, host, reported)
	if err != nil {
		return false, false, err
	}
	key := client.ObjectKeyFromObject(host)
	before := host.Status.Endpoint
	changed = !equality.Semantic.DeepEqual(before, after)
	if changed && facts.OnlyEvidenceDiffers(before, after) && r.sessions.DeferEvidence(key, reported) {
		return false, false, nil
	}
	r.sessions.DropEvidence(key)
	if changed {
		host.Status.Endpoint = after
	}
	return true, changed, nil
}

// acceptedEndpoint returns the new status.endpoint after a report about the control plane
// endpoint.
func (r *Recorder) acceptedEndpoint(ctx context.Context, host *infrav1.ElementalHost, reported *infrav1.HostEndpoint) (*infrav1.HostEndpoint, error) {
	if !facts.MayReportEndpoint(host) {
		return host.Status.Endpoint, nil
	}
	infra, err := r.clusters.InfraCluster(ctx, host)
	if err != nil {
		return nil, err
	}
	return facts.AcceptedEndpoint(host, infra, reported), nil
}
