// What can go wrong. Every error of this package is an AtollError; an answer of the server that is no success
// is an ApiError of the class that its code stands for.

export class AtollError extends Error {
    constructor(message: string, options?: { cause?: unknown }) {
        super(message, options);
        this.name = new.target.name;
    }
}

export interface ApiErrorDetails {
    status: number;
    code: string;
    /** A word that tells some of one code apart: "role", "deleting". */
    reason?: string | null;
    message: string;
    /** What in the request was wrong. */
    field: string | null;
    /** Under which the server's audit log and messages know the request. */
    requestId: string | null;
    /** Seconds, where the server says when to come back. */
    retryAfter: number | null;
    /** What else the answer held. */
    more?: Record<string, unknown>;
}

/** The server refused or failed. */
export class ApiError extends AtollError {
    readonly status: number;
    readonly code: string;
    readonly reason: string | null;
    readonly field: string | null;
    readonly requestId: string | null;
    readonly retryAfter: number | null;
    readonly more: Record<string, unknown>;

    constructor(details: ApiErrorDetails) {
        const { field, message } = details;
        super(field && !message.startsWith(field) ? `${field}: ${message}` : message);
        this.status = details.status;
        this.code = details.code;
        this.reason = details.reason ?? null;
        this.field = details.field;
        this.requestId = details.requestId;
        this.retryAfter = details.retryAfter;
        this.more = details.more ?? {};
    }
}

/** Something in the request is wrong; `field` may say what. */
export class InvalidRequest extends ApiError {}
/** Not allowed: see Unauthenticated and Forbidden. */
export class AuthError extends ApiError {}
/** No token, or one that is not valid (any more). */
export class Unauthenticated extends AuthError {}
/** A valid token whose role or scope does not reach this far. */
export class Forbidden extends AuthError {}
/** There is no such object, or it is not the caller's. */
export class NotFound extends ApiError {}
/** Somebody else was first, or the state does not fit. */
export class Conflict extends ApiError {}
/** It was there and is no longer kept. */
export class Gone extends ApiError {}
/** Over a limit of size or number. */
export class TooLarge extends ApiError {}
/** No byte of the wanted range exists. */
export class RangeNotSatisfiable extends ApiError {}
/** Too often; `retryAfter` says when to come back. */
export class RateLimited extends ApiError {}
/** The money or the tokens are used up. */
export class BudgetExceeded extends ApiError {}
/** A quota allows no more: delete something, or have the quota raised. */
export class QuotaExceeded extends ApiError {}
/** The machine has no more memory, processors or disk for this. */
export class NoCapacity extends ApiError {}
/** The server gave up waiting. */
export class ServerTimeout extends ApiError {}
/** Not now: the server drains, starts, or is full. */
export class Unavailable extends ApiError {}
/** What listens on a port of a sandbox, or should, did not answer properly. */
export class BadGateway extends ApiError {}
/** A disk is full. */
export class NoSpace extends ApiError {}
/** Not built, or not possible on the server's machine. */
export class Unsupported extends ApiError {}
/** The server's own mistake. */
export class ServerError extends ApiError {}

/** No connection, or it broke in a place where repeating is not safe or did not help. */
export class ConnectionFailed extends AtollError {}
/** No answer within the time that was given. */
export class RequestTimeout extends AtollError {}
/** An archive names files outside of the directory that it is unpacked into. */
export class UnsafeArchive extends AtollError {}
/** A command that did not exit with 0, where that was asked for. */
export class CommandFailed extends AtollError {}

export const errorsByCode: Record<string, new (details: ApiErrorDetails) => ApiError> = {
    internal: ServerError,
    invalid: InvalidRequest,
    unprocessable: InvalidRequest,
    unauthenticated: Unauthenticated,
    forbidden: Forbidden,
    not_found: NotFound,
    method_not_allowed: InvalidRequest,
    conflict: Conflict,
    gone: Gone,
    too_large: TooLarge,
    headers_too_large: TooLarge,
    unsupported_media: InvalidRequest,
    expectation_failed: InvalidRequest,
    range_not_satisfiable: RangeNotSatisfiable,
    rate_limited: RateLimited,
    misdirected: Forbidden,
    budget_exceeded: BudgetExceeded,
    quota_exceeded: QuotaExceeded,
    no_capacity: NoCapacity,
    timeout: ServerTimeout,
    unavailable: Unavailable,
    bad_gateway: BadGateway,
    no_space: NoSpace,
    unsupported: Unsupported,
    cancelled: ApiError,
};
