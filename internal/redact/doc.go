// Package redact removes what looks like a secret from texts that leave a host or the management
// cluster. The agent uses it for messages and logs of operations, the plugin of kubectl for
// support bundles. Secrets of no known form stay: whoever gets such a text has to be trusted
// with it all the same.
package redact
