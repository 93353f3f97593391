package authority

import (
	"bytes"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// RotationAnnotation on the Secret requests a step of a rotation. It is removed when the
// step was executed or refused.
const RotationAnnotation = "infrastructure.cluster.x-k8s.io/ca-rotation"

// Steps of a rotation, the values of RotationAnnotation.
const (
	// StepPrepare creates the next CA and makes hosts trust it in addition to the old one.
	StepPrepare = "Prepare"
	// StepSwitch signs with the next CA once all hosts trust it.
	StepSwitch = "Switch"
	// StepForce is StepSwitch without waiting for hosts.
	StepForce = "Force"
	// StepFinish makes hosts trust only the CA in use.
	StepFinish = "Finish"
)

// refusal is the reason why a step can't be executed.
type refusal string

// Error implements error.
func (r refusal) Error() string { return string(r) }

// prepare changes data so that hosts trust the next CA too. It uses an existing next CA, so
// repeating it changes nothing.
func prepare(m *material, data map[string][]byte, now time.Time) (string, error) {
	next := m.next
	if next == nil {
		made, err := newPair(now)
		if err != nil {
			return "", fmt.Errorf("making the next authority: %w", err)
		}
		next = made
		if data[NextCertKey], data[NextKeyKey], err = made.encode(); err != nil {
			return "", err
		}
	}
	if next.cert.Equal(m.signer.cert) {
		return "", refusal("the next CA is the one in use; remove " + NextCertKey + " and " + NextKeyKey)
	}
	if len(anchors(next.cert, m.roots)) == 0 {
		if err := next.cert.CheckSignatureFrom(next.cert); err != nil {
			return "", refusal(NextCertKey + " is not a root; put the root that it chains to into " + BundleKey + " first")
		}
		if len(m.roots) == maxRoots {
			return "", refusal(fmt.Sprintf("%s holds %d roots already; remove those that are not needed", BundleKey, maxRoots))
		}
		bundle := append(bytes.TrimRight(data[BundleKey], "\n"), '\n')
		data[BundleKey] = append(bundle, encodeCert(next.cert)...)
	}
	return "Hosts are told to trust the next CA too; set the annotation to " + StepSwitch + " when they do", nil
}

// switchOver changes data so that the next CA signs.
func switchOver(m *material, data map[string][]byte) (string, error) {
	if err := switchable(m); err != nil {
		return "", err
	}
	data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = data[NextCertKey], data[NextKeyKey]
	delete(data, NextCertKey)
	delete(data, NextKeyKey)
	return "The next CA signs now; set the annotation to " + StepFinish + " to have hosts drop the old one", nil
}

// switchable returns a refusal if the next CA can't sign.
func switchable(m *material) error {
	switch {
	case m.next == nil:
		return refusal("there is no next CA; " + StepPrepare + " comes first")
	case len(anchors(m.next.cert, m.roots)) == 0:
		return refusal("the next CA does not chain to a root in " + BundleKey + "; " + StepPrepare + " comes first")
	}
	return nil
}

// finish changes data so that hosts trust only the CA in use.
func finish(m *material, data map[string][]byte) (string, error) {
	if m.next != nil {
		return "", refusal("the next CA does not sign yet; " + StepSwitch + " comes first")
	}
	needed := anchors(m.signer.cert, m.roots)
	if len(needed) == len(m.roots) {
		return "Hosts trust no other CA than the one in use", nil
	}
	var bundle []byte
	for _, root := range needed {
		bundle = append(bundle, encodeCert(root)...)
	}
	data[BundleKey] = bundle
	return "Hosts are told to trust no other CA than the one in use", nil
}
