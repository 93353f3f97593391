package audit

import (
	"context"
	"reflect"
	"strings"

	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Changes that only Requested names: the manager makes them all the time.
const (
	claimed         Decision = "Claimed"
	claimChanged    Decision = "ClaimChanged"
	unclaimed       Decision = "Unclaimed"
	identityChanged Decision = "IdentityChanged"
	installChanged  Decision = "InstallChanged"
	restoreChanged  Decision = "RestoreChanged"
	// logRequested: somebody asks the host for a log, or no longer does.
	logRequested Decision = "LogRequestChanged"
	// confirmed: somebody has a restore of etcd begin.
	confirmed Decision = "RestoreConfirmed"
	// granted: somebody grants hosts to another namespace.
	granted Decision = "HostsGranted"
	// successorChanged and agentChanged: somebody decides which management cluster hosts follow to,
	// and which agent they run.
	successorChanged Decision = "SuccessorChanged"
	agentChanged     Decision = "AgentChanged"
)

// maxUser bounds the name of a user in bytes. An identity provider may send any text.
const maxUser = 256

// change is a change of a host's spec, with details for its line.
type change struct {
	decision Decision
	details  []any
}

// RecordSpecChange records the decisions of administrators that differ between two
// states of a host's spec. The generation in its lines is that of the request, if
// RecordRequest recorded one.
func (l *Log) RecordSpecChange(ctx context.Context, before, after *infrav1.ElementalHost) {
	for _, c := range accessChanges(before, after) {
		l.Record(ctx, c.decision, after, append(c.details, "generation", after.Generation)...)
	}
}

// RecordRequest records that a user requests a change of a host: who may access the
// manager as this host, and who uses it. before is a host without spec if the user
// creates the host. The user name may be any text. source is the address of whoever says
// that the user requests it.
func (l *Log) RecordRequest(ctx context.Context, user, source string, before, after *infrav1.ElementalHost) {
	for _, c := range append(accessChanges(before, after), otherChanges(before, after)...) {
		keysAndValues := []any{"change", string(c.decision), "user", bounded(user), "source", source, "generation", after.Generation}
		l.Record(ctx, Requested, after, append(keysAndValues, c.details...)...)
	}
}

// RecordRestore records that a user requests the restore of etcd that an ElementalEtcdRestore
// describes. before is one without spec if the user creates it.
func (l *Log) RecordRestore(ctx context.Context, user, source string, before, after *infrav1.ElementalEtcdRestore) {
	if after.Spec.Confirm == "" || before.Spec.Confirm == after.Spec.Confirm {
		return
	}
	var snapshot infrav1.EtcdRestoreSnapshot
	if after.Spec.Source.Snapshot != nil {
		snapshot = *after.Spec.Source.Snapshot
	}
	l.Record(ctx, Requested, nil, "ElementalEtcdRestore", klog.KObj(after).String(), "change", string(confirmed), "user", bounded(user),
		"source", source, "generation", after.Generation, "clusterName", after.Spec.ClusterName, "hostName", snapshot.HostName,
		"snapshotID", snapshot.ID, "replaceHealthy", ptr.Deref(after.Spec.ReplaceHealthy, false), "rebuildControlPlane", ptr.Deref(after.Spec.RebuildControlPlane, false))
}

// RecordGrant records that a user requests a grant of hosts, or another extent of it. before is one
// without spec if the user creates it.
func (l *Log) RecordGrant(ctx context.Context, user, source string, before, after *infrav1.ElementalHostGrant) {
	if reflect.DeepEqual(before.Spec, after.Spec) {
		return
	}
	l.Record(ctx, Requested, nil, "ElementalHostGrant", klog.KObj(after).String(), "change", string(granted), "user", bounded(user),
		"source", source, "generation", after.Generation, "toNamespace", after.Spec.Namespace)
}

// RecordRegistration records that a user requests a change of what hosts of a registration run or
// follow to. before is one without spec if the user creates it.
func (l *Log) RecordRegistration(ctx context.Context, user, source string, before, after *infrav1.ElementalRegistration) {
	record := func(decision Decision, keysAndValues ...any) {
		l.Record(ctx, Requested, nil, append([]any{
			"ElementalRegistration", klog.KObj(after).String(), "change", string(decision), "user", bounded(user),
			"source", source, "generation", after.Generation,
		}, keysAndValues...)...)
	}
	if s := after.Spec.Successor; !reflect.DeepEqual(before.Spec.Successor, s) {
		var urls []string
		if s != nil {
			urls = s.URLs
		}
		record(successorChanged, "urls", strings.Join(urls, " "))
	}
	if a := after.Spec.Agent; !reflect.DeepEqual(before.Spec.Agent, a) {
		version := ""
		if a != nil {
			version = a.Version
		}
		record(agentChanged, "version", version)
	}
}

// accessChanges returns the changes of approval and fence, and the removal of a lock.
func accessChanges(before, after *infrav1.ElementalHost) []change {
	var changes []change
	if was, is := approval(before), approval(after); was != is {
		changes = append(changes, change{decisionOf(is), []any{"before", string(was)}})
	}
	if before.Spec.Lock != nil && after.Spec.Lock == nil {
		changes = append(changes, change{decision: Unlocked})
	}
	switch {
	case before.Spec.Fence == nil && after.Spec.Fence != nil:
		changes = append(changes, change{Fenced, []any{"reason", after.Spec.Fence.Reason}})
	case before.Spec.Fence != nil && after.Spec.Fence == nil:
		changes = append(changes, change{decision: Unfenced})
	}
	return changes
}

// otherChanges returns the changes of claim, identity, and of what the host installs or restores,
// and a new lock.
func otherChanges(before, after *infrav1.ElementalHost) []change {
	var changes []change
	if before.Spec.Lock == nil && after.Spec.Lock != nil {
		changes = append(changes, change{Locked, []any{"reason", string(after.Spec.Lock.Reason)}})
	}
	switch was, is := before.Spec.Claim, after.Spec.Claim; {
	case was == nil && is != nil:
		changes = append(changes, change{claimed, describe(is)})
	case was != nil && is == nil:
		changes = append(changes, change{unclaimed, describe(was)})
	case was != nil && *was != *is:
		changes = append(changes, change{claimChanged, append(describe(is), "before", string(was.Phase))})
	}
	if !reflect.DeepEqual(before.Spec.Identity, after.Spec.Identity) {
		var fingerprint string
		if after.Spec.Identity != nil {
			fingerprint = after.Spec.Identity.KeyFingerprint
		}
		changes = append(changes, change{identityChanged, []any{"keyFingerprint", fingerprint}})
	}
	if was, is := before.Spec, after.Spec; !reflect.DeepEqual(was.Bundle, is.Bundle) || !reflect.DeepEqual(was.NodeUpgrade, is.NodeUpgrade) ||
		!reflect.DeepEqual(was.OSUpgrade, is.OSUpgrade) {
		changes = append(changes, change{decision: installChanged})
	}
	if !reflect.DeepEqual(before.Spec.EtcdRestore, after.Spec.EtcdRestore) {
		changes = append(changes, change{decision: restoreChanged})
	}
	if !reflect.DeepEqual(before.Spec.LogRequest, after.Spec.LogRequest) {
		changes = append(changes, change{decision: logRequested})
	}
	return changes
}

// describe returns the details of a claim.
func describe(c *infrav1.HostClaim) []any {
	return []any{"clusterName", c.ClusterName, "machineName", c.MachineName, "phase", string(c.Phase)}
}

// approval returns the approval of a host; a blank one means Pending.
func approval(host *infrav1.ElementalHost) infrav1.Approval {
	if host.Spec.Approval == "" {
		return infrav1.ApprovalPending
	}
	return host.Spec.Approval
}

// decisionOf returns the decision that results in the approval.
func decisionOf(a infrav1.Approval) Decision {
	switch a {
	case infrav1.ApprovalApproved:
		return Approved
	case infrav1.ApprovalRejected:
		return Rejected
	case infrav1.ApprovalPending:
	}
	return Pending
}

// bounded cuts a user name that is too long, at the end of a character.
func bounded(user string) string {
	if len(user) <= maxUser {
		return user
	}
	return strings.ToValidUTF8(user[:maxUser], "") + "…"
}
