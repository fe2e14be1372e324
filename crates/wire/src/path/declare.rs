//! Turns rows of the table of routes into types.
//!
//! For each group of routes, `routes!` makes an enum with a variant for each row, and an `Endpoint` with a variant for each
//! method of each row. The server matches endpoints without a wildcard, so a row without a handler does not compile,
//! and neither does a handler without a row.

macro_rules! routes {
    (
        $(#[$meta:meta])* enum $name:ident;
        $(groups { $($(#[$group_meta:meta])* $group:ident($inner:ty),)* } else $unknown:ident;)?
        rows { $($rows:tt)* }
    ) => {
        routes!(@rows
            { [$(#[$meta])*] $name [$($({ [$(#[$group_meta])*] $group $inner })*)?] [$($unknown)?] }
            [] $($rows)*
        );
    };

    // Puts rows into one form, whether their variants have named fields, one field without a name, or none.
    (@rows $head:tt [$($done:tt)*]
        $(#[doc = $doc:literal])+
        $variant:ident { $($field:ident: $kind:ident),+ $(,)? } => $row:tt
        $($rest:tt)*
    ) => {
        routes!(@rows $head [$($done)* { [$($doc)+] $variant
            [{ $($field: <$crate::path::fields::$kind as $crate::path::fields::Field>::Value),+ }]
            [{ $($field),+ }] [$($field $kind)+] $row
        }] $($rest)*);
    };
    (@rows $head:tt [$($done:tt)*]
        $(#[doc = $doc:literal])+
        $variant:ident($field:ident: $kind:ident) => $row:tt
        $($rest:tt)*
    ) => {
        routes!(@rows $head [$($done)* { [$($doc)+] $variant
            [(<$crate::path::fields::$kind as $crate::path::fields::Field>::Value)]
            [($field)] [$field $kind] $row
        }] $($rest)*);
    };
    (@rows $head:tt [$($done:tt)*]
        $(#[doc = $doc:literal])+
        $variant:ident => $row:tt
        $($rest:tt)*
    ) => {
        routes!(@rows $head [$($done)* { [$($doc)+] $variant [] [] [] $row }] $($rest)*);
    };
    (@rows $head:tt [$($done:tt)*]) => { routes!(@types $head $($done)*); };

    (@types
        { [$($meta:tt)*] $name:ident [$({ [$($group_meta:tt)*] $group:ident $inner:ty })*] [$($unknown:ident)?] }
        $({ [$($doc:literal)+] $variant:ident [$($types:tt)*] [$($names:tt)*] [$($field:ident $kind:ident)*] {
            $path:literal $(or $other:literal)*, [$($method:ident),+],
            needs $reads:ident $(or $changes:ident)?
            $(, log $log:literal)? $(, no log $why:literal)? $(, audience $audience:ident)? $(,)?
        } })*
    ) => {
        $($meta)*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $doc])+ $variant $($types)*,)*
            $($($group_meta)* $group($inner),)*
            $(
                /// A path that is not served.
                $unknown,
            )?
        }

        static ROWS: &[$crate::path::table::Row] = &[$(
            $crate::path::table::Row {
                name: stringify!($variant),
                paths: &[$path, $($other),*],
                fields: &[$((stringify!($field), &$crate::path::fields::$kind)),*],
                methods: &[$($crate::path::table::Method::$method),+],
                reads: routes!(@needs $reads),
                changes: routes!(@needs $($changes)? $reads),
                log: routes!(@log $($log)? $(no $why)?),
                audience: routes!(@audience $($audience)?),
                documentation: concat!($($doc),+),
            }.checked()
        ),*];

        impl $crate::path::table::Table for $name {
            type Endpoint = Endpoint;

            fn rows() -> Vec<&'static $crate::path::table::Row> {
                #[allow(unused_mut, reason = "only some have groups")]
                let mut rows: Vec<_> = ROWS.iter().collect();
                $(rows.extend(<$inner as $crate::path::table::Table>::rows());)*
                rows
            }

            fn row(&self) -> Option<&'static $crate::path::table::Row> {
                #[allow(clippy::enum_variant_names, reason = "the names of the rows")]
                enum Place { $($variant),* }
                let place = match self {
                    $($name::$variant { .. } => Place::$variant,)*
                    $($name::$group(inner) => return inner.row(),)*
                    $($name::$unknown => return None,)?
                };
                Some(&ROWS[place as usize])
            }

            fn find(segments: &[String]) -> Result<Option<$name>, $crate::path::PathError> {
                #[allow(clippy::enum_variant_names, reason = "the names of the rows")]
                enum Place { $($variant),* }
                $(
                    if let Some(_found) = ROWS[Place::$variant as usize].find(segments) {
                        $(let $field = <$crate::path::fields::$kind as $crate::path::fields::Field>::read(
                            _found.of(stringify!($field))
                        )?;)*
                        return Ok(Some($name::$variant $($names)*));
                    }
                )*
                $(
                    if let Some(inner) = <$inner as $crate::path::table::Table>::find(segments)? {
                        return Ok(Some($name::$group(inner)));
                    }
                )*
                Ok(None)
            }

            fn show(&self, field: &str, form: $crate::path::fields::Form) -> String {
                match self {
                    $($name::$variant $($names)* => {
                        $(if field == stringify!($field) {
                            return <$crate::path::fields::$kind as $crate::path::fields::Field>::show($field, form);
                        })*
                    })*
                    $($name::$group(inner) => return inner.show(field, form),)*
                    $($name::$unknown => {})?
                }
                String::new()
            }

            fn scope(&self) -> muster_core::model::Scope {
                let mut scope = muster_core::model::Scope::Everything;
                match self {
                    $($name::$variant $($names)* => {
                        $(<$crate::path::fields::$kind as $crate::path::fields::Field>::narrow($field, &mut scope);)*
                    })*
                    $($name::$group(inner) => return inner.scope(),)*
                    $($name::$unknown => {})?
                }
                scope
            }

            #[allow(clippy::match_single_binding, reason = "only some have groups")]
            fn on(self, method: &str) -> Result<Endpoint, $crate::path::table::NoEndpoint> {
                use $crate::path::table::NoEndpoint;
                let route = match self {
                    $($name::$group(inner) => return inner.on(method).map(Endpoint::$group),)*
                    route => route,
                };
                let Some(row) = route.row() else { return Err(NoEndpoint::Route) };
                let found = match method {
                    "GET" => Get::of(route).map(Endpoint::Get),
                    "HEAD" => Head::of(route).map(Endpoint::Head),
                    "PUT" => Put::of(route).map(Endpoint::Put),
                    "PATCH" => Patch::of(route).map(Endpoint::Patch),
                    "POST" => Post::of(route).map(Endpoint::Post),
                    "DELETE" => Delete::of(route).map(Endpoint::Delete),
                    _ => None,
                };
                found.ok_or_else(|| NoEndpoint::Method { allow: row.allow() })
            }
        }

        /// A route with one of its methods.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Endpoint {
            Get(Get),
            Head(Head),
            Put(Put),
            Patch(Patch),
            Post(Post),
            Delete(Delete),
            $($group(<$inner as $crate::path::table::Table>::Endpoint),)*
        }

        routes!(@methods $name [] [] [] [] [] []
            $({ ($variant [$($types)*] [$($names)*]) $($method)+ })*);
    };

    (@needs Nothing $($reads:ident)?) => { $crate::path::table::Needs::Nothing };
    (@needs Token $($reads:ident)?) => { $crate::path::table::Needs::Token };
    (@needs Something $($reads:ident)?) => { $crate::path::table::Needs::Something };
    (@needs $action:ident $($reads:ident)?) => {
        $crate::path::table::Needs::To(muster_core::model::Action::$action)
    };

    (@log) => { $crate::path::table::Log::OnlyReads };
    (@log $log:literal) => { $crate::path::table::Log::As($log) };
    (@log no $why:literal) => { $crate::path::table::Log::Not($why) };

    (@audience) => { $crate::path::table::Audience::Manager };
    (@audience $audience:ident) => { $crate::path::table::Audience::$audience };

    // Sorts the rows by method, one method of one row at a time.
    (@methods $name:ident $get:tt $head:tt $put:tt $patch:tt $post:tt $delete:tt
        { $row:tt } $($rest:tt)*) => {
        routes!(@methods $name $get $head $put $patch $post $delete $($rest)*);
    };
    (@methods $name:ident [$($get:tt)*] $head:tt $put:tt $patch:tt $post:tt $delete:tt
        { $row:tt Get $($more:ident)* } $($rest:tt)*) => {
        routes!(@methods $name [$($get)* $row] $head $put $patch $post $delete { $row $($more)* } $($rest)*);
    };
    (@methods $name:ident $get:tt [$($head:tt)*] $put:tt $patch:tt $post:tt $delete:tt
        { $row:tt Head $($more:ident)* } $($rest:tt)*) => {
        routes!(@methods $name $get [$($head)* $row] $put $patch $post $delete { $row $($more)* } $($rest)*);
    };
    (@methods $name:ident $get:tt $head:tt [$($put:tt)*] $patch:tt $post:tt $delete:tt
        { $row:tt Put $($more:ident)* } $($rest:tt)*) => {
        routes!(@methods $name $get $head [$($put)* $row] $patch $post $delete { $row $($more)* } $($rest)*);
    };
    (@methods $name:ident $get:tt $head:tt $put:tt [$($patch:tt)*] $post:tt $delete:tt
        { $row:tt Patch $($more:ident)* } $($rest:tt)*) => {
        routes!(@methods $name $get $head $put [$($patch)* $row] $post $delete { $row $($more)* } $($rest)*);
    };
    (@methods $name:ident $get:tt $head:tt $put:tt $patch:tt [$($post:tt)*] $delete:tt
        { $row:tt Post $($more:ident)* } $($rest:tt)*) => {
        routes!(@methods $name $get $head $put $patch [$($post)* $row] $delete { $row $($more)* } $($rest)*);
    };
    (@methods $name:ident $get:tt $head:tt $put:tt $patch:tt $post:tt [$($delete:tt)*]
        { $row:tt Delete $($more:ident)* } $($rest:tt)*) => {
        routes!(@methods $name $get $head $put $patch $post [$($delete)* $row] { $row $($more)* } $($rest)*);
    };
    (@methods $name:ident $get:tt $head:tt $put:tt $patch:tt $post:tt $delete:tt) => {
        routes!(@method $name Get $get);
        routes!(@method $name Head $head);
        routes!(@method $name Put $put);
        routes!(@method $name Patch $patch);
        routes!(@method $name Post $post);
        routes!(@method $name Delete $delete);
    };
    (@method $name:ident $method:ident [$(($variant:ident [$($types:tt)*] [$($names:tt)*]))*]) => {
        /// The routes with this method.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $method { $($variant $($types)*),* }

        impl $method {
            #[allow(unreachable_patterns, clippy::match_single_binding, reason = "some have all rows, some none")]
            fn of(route: $name) -> Option<$method> {
                match route {
                    $($name::$variant $($names)* => Some($method::$variant $($names)*),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use routes;
