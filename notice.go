package ckptsidecar

// NoticeType is the kind of event that a notice reports.
type NoticeType string

// The types of notices.
const (
	NoticePrompt   NoticeType = "prompt.opened"
	NoticeDead     NoticeType = "run.dead"      // the process of the run's owner has ended
	NoticeTimedOut NoticeType = "run.timed_out" // the run's owner is silent, or makes no progress
	NoticeFinding  NoticeType = "finding.critical"
	NoticeStorage  NoticeType = "storage.trouble"
	NoticeBackup   NoticeType = "backup.failed"
	NoticeTest     NoticeType = "test" // an operator has asked for it
)

// NoticeTypes lists every type that a hook can choose.
var NoticeTypes = []NoticeType{NoticePrompt, NoticeDead, NoticeTimedOut, NoticeFinding, NoticeStorage, NoticeBackup}

// Notice is the message to a hook: the body of a webhook, or the standard input of a command.
type Notice struct {
	ID        string     `json:"id"` // the same at each attempt
	Type      NoticeType `json:"type"`
	Timestamp Time       `json:"timestamp"`
	Data      NoticeData `json:"data"`
}

// NoticeData describes the event. Its members are about a run if the event is about one.
type NoticeData struct {
	Owner   string `json:"owner,omitempty"`
	Agent   string `json:"agent,omitempty"`
	Run     string `json:"run,omitempty"`
	Subject string `json:"subject,omitempty"` // the id of the prompt or the finding
	Message string `json:"message"`           // one or two sentences
}

// MaxNoticeMessage is the maximum length in bytes of a text that a notice contains.
const MaxNoticeMessage = 1024

// NotifyStatus is the status of notices. Only administrators see it.
type NotifyStatus struct {
	Hooks   []HookStatus `json:"hooks"`
	Dropped int64        `json:"dropped"` // notices that were dropped because the queue was full
}

// HookStatus is the status of one hook.
type HookStatus struct {
	Name      string `json:"name" db:"hook"`
	Kind      string `json:"kind" db:"-"` // webhook or command; "" if it is no longer in the settings
	Pending   int64  `json:"pending" db:"pending"`
	Delivered int64  `json:"delivered" db:"delivered"` // of the notices that are not forgotten yet
	Dead      int64  `json:"dead" db:"dead"`           // given up, and not forgotten yet
	Oldest    Time   `json:"oldest_pending" db:"oldest"`
	LastError Ref    `json:"last_error" db:"last_error"` // of the newest notice that is not delivered; null if none
}

// NotifyTested lists the hooks for which a notice of type test is waiting.
type NotifyTested struct {
	ID    string   `json:"id"`
	Hooks []string `json:"hooks"`
}
