// Package bootstrapsecret finds the Secret with a host's bootstrap data.
//
// The host object names no Secret, so that permission to edit hosts does not make other
// Secrets readable. The Secret is found through the claim's Machine and its
// ElementalMachine, which must name the host and the claim in return. A Machine can't
// make other Secrets readable either: its bootstrap configuration must control the Secret.
package bootstrapsecret
