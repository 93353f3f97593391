package enrolment

import (
	"bytes"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// KeysKey lists the hosts that have enrolled with the token, as abbreviated fingerprints of
// their keys: one line for each host, the newest host last. A key in this list whose host
// does not exist any more belongs to a deleted host.
const KeysKey = "enrolled-keys"

const (
	// maxRememberedHosts bounds the list, because the API server stores all of the Secret
	// for each use.
	maxRememberedHosts = 2000
	// maxRememberedKeys of a host are its current, next and former key, and one before
	// these: a host that has announced its next key still has its former one.
	maxRememberedKeys = 4
	// abbreviation is the number of hex digits that are kept of a fingerprint. A match by
	// chance would only make an administrator approve a host.
	abbreviation = 16
)

// RemembersKey reports whether a host with the key has enrolled with the Secret's token.
func RemembersKey(secret *corev1.Secret, fingerprint string) bool {
	key := abbreviate(fingerprint)
	return key != "" && bytes.Contains(secret.Data[KeysKey], []byte(key))
}

// RememberKey adds the key of a host that enrols with the Secret's token. It returns the
// number of hosts that it forgot, because only the last 2,000 are remembered.
func RememberKey(secret *corev1.Secret, fingerprint string) (forgotten int) {
	if RemembersKey(secret, fingerprint) {
		return 0
	}
	hosts := append(rememberedHosts(secret), abbreviate(fingerprint))
	forgotten = max(0, len(hosts)-maxRememberedHosts)
	writeHosts(secret, hosts[forgotten:])
	return forgotten
}

// RememberNextKey adds the next key of a host that has enrolled with the Secret's token. It
// reports whether it changed the Secret.
func RememberNextKey(secret *corev1.Secret, fingerprint, next string) bool {
	if !RemembersKey(secret, fingerprint) || RemembersKey(secret, next) {
		return false
	}
	hosts := rememberedHosts(secret)
	i := lineOf(hosts, fingerprint)
	keys := append(strings.Fields(hosts[i]), abbreviate(next))
	hosts[i] = strings.Join(keys[max(0, len(keys)-maxRememberedKeys):], " ")
	writeHosts(secret, hosts)
	return true
}

// ForgetKey removes the host with the key.
func ForgetKey(secret *corev1.Secret, fingerprint string) {
	if RemembersKey(secret, fingerprint) {
		hosts := rememberedHosts(secret)
		i := lineOf(hosts, fingerprint)
		writeHosts(secret, slices.Delete(hosts, i, i+1))
	}
}

func rememberedHosts(secret *corev1.Secret) []string {
	return slices.DeleteFunc(strings.Split(string(secret.Data[KeysKey]), "\n"), func(line string) bool { return line == "" })
}

func writeHosts(secret *corev1.Secret, hosts []string) {
	if len(hosts) == 0 {
		delete(secret.Data, KeysKey)
		return
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[KeysKey] = []byte(strings.Join(hosts, "\n"))
}

// lineOf returns the number of the line with a key that is remembered.
func lineOf(hosts []string, fingerprint string) int {
	key := abbreviate(fingerprint)
	return slices.IndexFunc(hosts, func(line string) bool { return strings.Contains(line, key) })
}

func abbreviate(fingerprint string) string {
	digits := fingerprint[strings.LastIndex(fingerprint, ":")+1:]
	return digits[:min(len(digits), abbreviation)]
}
