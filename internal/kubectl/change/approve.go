package change

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Limits of a list of fingerprints.
const (
	maxFingerprints      = 10_000
	maxFingerprintsBytes = 1 << 20
)

var fingerprint = regexp.MustCompile(`^(sha256:)?[0-9a-f]{64}$`)

// ParseFingerprint returns the fingerprint of a key as hosts have it. The prefix may be missing.
func ParseFingerprint(text string) (string, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	if !fingerprint.MatchString(text) {
		return "", fmt.Errorf("%q is no fingerprint: give sha256: and 64 hexadecimal digits, as `elemental-agent status` prints it on the host", text)
	}
	return "sha256:" + strings.TrimPrefix(text, "sha256:"), nil
}

// ReadFingerprints reads a list with one fingerprint a line. Blank lines and lines that begin
// with # are skipped.
func ReadFingerprints(from io.Reader) ([]string, error) {
	limited := &io.LimitedReader{R: from, N: maxFingerprintsBytes + 1}
	lines := bufio.NewScanner(limited)
	var list []string
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f, err := ParseFingerprint(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		list = append(list, f)
	}
	switch {
	case lines.Err() != nil:
		return nil, fmt.Errorf("reading fingerprints: %w", lines.Err())
	case limited.N == 0 || len(list) > maxFingerprints:
		return nil, fmt.Errorf("there are more than %d fingerprints, or more than %d bytes: divide the list", maxFingerprints, maxFingerprintsBytes)
	case len(list) == 0:
		return nil, errors.New("there are no fingerprints: give one a line")
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// Fingerprint returns the fingerprint of the host's key; blank if no machine has enrolled as
// this host.
func Fingerprint(host *infrav1.ElementalHost) string {
	if host.Spec.Identity == nil {
		return ""
	}
	return host.Spec.Identity.KeyFingerprint
}

// Approve plans the approval of a host whose key has the fingerprint.
func Approve(host *infrav1.ElementalHost, fingerprint string) (*Plan, error) {
	if err := checkDeletion(host); err != nil {
		return nil, err
	}
	switch is := Fingerprint(host); {
	case is == "":
		return nil, refuse(host, "no machine has enrolled as this host yet", "Start the agent on the machine, then compare its fingerprint")
	case is != fingerprint:
		return nil, refuse(host, fmt.Sprintf("its key is %s, not %s", is, fingerprint),
			"Compare with `elemental-agent status` on the machine. If the machine has another key, this is another host: kubectl elemental hosts shows all")
	}
	if host.Spec.Lock != nil {
		return nil, refuse(host, "it is locked, because two machines used its key", "Destroy the copy and remove spec.lock first")
	}
	if c := meta.FindStatusCondition(host.Status.Conditions, infrav1.KeyAcceptedCondition); c != nil && c.Status == metav1.ConditionFalse {
		return nil, refuse(host, "its key is that of another host: "+c.Message, "Delete one of the two ElementalHosts")
	}
	if host.Spec.Approval == infrav1.ApprovalApproved {
		return done(host, "it is approved already, with this key"), nil
	}
	p := patchHost(host, "approve it", func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalApproved })
	p.Effects = append(p.Effects, "Its key is "+fingerprint+", as given", "It may get bootstrap data of Machines that it matches")
	switch {
	case host.Spec.Approval == infrav1.ApprovalRejected:
		p.Effects = append(p.Effects, "It was rejected before")
	case host.Spec.PendingReason != "":
		p.Effects = append(p.Effects, fmt.Sprintf("It waits because of %s: it was enrolled before, or its hardware is that of several hosts", host.Spec.PendingReason))
	}
	return p, nil
}

// Reject plans to bar a host.
func Reject(s Situation) (*Plan, error) {
	host := s.Host
	if err := checkDeletion(host); err != nil {
		return nil, err
	}
	if host.Spec.Approval == infrav1.ApprovalRejected {
		return done(host, "it is rejected already"), nil
	}
	p := patchHost(host, "reject it", func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected })
	p.Effects = append(p.Effects, "The manager refuses all requests of the host at once, also on open connections")
	if claim := host.Spec.Claim; claim != nil && claim.MachineName != "" {
		p.IsDestructive = true
		p.Effects = append(p.Effects, fmt.Sprintf("What runs on it is not changed: Machine %s of Cluster %s stays, and can't be reset while the host is rejected",
			claim.MachineName, claim.ClusterName))
	}
	if s.isEndpoint() {
		p.Effects = append(p.Effects, s.endpointEffect())
	}
	return p, nil
}
